"""The whole service in this process: real routes, workers and PostgreSQL; models by the book."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from kaos_memory.api.app import Parts, create_app
from kaos_memory.assembly import storage_of
from kaos_memory.engine.protocols import Extraction, ModelError, NeighbourSearch
from kaos_memory.memory import Memory
from kaos_memory.settings import ServiceSettings, validate
from kaos_memory.telemetry.instruments import Instruments
from kaos_memory.tiers.memory import Digest, NewFact, Owner, Turn
from kaos_memory.work.housekeeping import Housekeeping
from kaos_memory.work.workers import Workers

from ..conftest import DIMS, IDENTITY, Where

WORDS = ("tea", "rain", "train", "python", "garden", "music", "paris", "tax")


class WordModel:
    """All three roles: embeds by known words, digests and extracts by quoting."""

    def __init__(self) -> None:
        self.failing = False
        self.slow = asyncio.Event()
        self.slow.set()

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        await self._answer()
        return [[1.0 if word in text else 0.01 for word in WORDS] for text in texts]

    async def fold(self, digest: Digest, turns: Sequence[Turn]) -> str:
        await self._answer()
        return " ".join([digest.summary, *(turn.content for turn in turns)]).strip()

    async def extract(
        self, owner: Owner, turns: Sequence[Turn], neighbours: NeighbourSearch
    ) -> Extraction:
        texts = [f"{owner.principal or owner.agent} said: {turn.content}" for turn in turns]
        embeddings = await self.embed(texts)
        await neighbours(embeddings[0], 5)
        return Extraction(
            [
                NewFact(text, vector, turn.position, turn.position, turn.said_at)
                for text, vector, turn in zip(texts, embeddings, turns, strict=True)
            ]
        )

    async def _answer(self) -> None:
        await self.slow.wait()
        if self.failing:
            raise ModelError("scripted")


@dataclass
class Service:
    """A running service and the ways to look at it."""

    client: httpx.AsyncClient
    model: WordModel
    settings: ServiceSettings

    async def post(self, path: str, body: dict[str, Any], **headers: str) -> httpx.Response:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return await self.client.post(f"/v1/{path}", json=body, headers=named)

    async def write(self, who: dict[str, str], *contents: str, **fields: Any) -> httpx.Response:
        turns = [{"role": "user", "content": content} for content in contents]
        return await self.post("write", {"attribution": who, "turns": turns, **fields})

    async def recall(self, scope: dict[str, str], query: str = "", **fields: Any) -> dict[str, Any]:
        response = await self.post("recall", {"scope": scope, "query": query, **fields})
        assert response.status_code == 200, response.text
        return response.json()

    async def facts(self, scope: dict[str, str]) -> list[str]:
        response = await self.post("list", {"scope": scope, "include": ["long_term"]})
        assert response.status_code == 200, response.text
        return [fact["memory"] for fact in response.json()["long_term"]["facts"]]

    async def until(self, true: Callable[[], Awaitable[bool]]) -> None:
        """Wait for a condition that background work brings about."""
        async with asyncio.timeout(20):
            while not await true():  # noqa: ASYNC110 - workers bring it about
                await asyncio.sleep(0.01)


ServiceFactory = Callable[..., contextlib.AbstractAsyncContextManager[Service]]


@pytest.fixture(params=["postgres", "local"])
def backend(request: pytest.FixtureRequest) -> str:
    """The storage behind the service; a module about one of them overrides this."""
    return request.param


@pytest.fixture
def start(backend: str, request: pytest.FixtureRequest) -> ServiceFactory:
    """Start services on the test's database or directory."""
    place = request.getfixturevalue("dsn" if backend == "postgres" else "directory")

    @contextlib.asynccontextmanager
    async def start_one(*, to: Where = place, **changes: Any) -> AsyncGenerator[Service]:
        model = {"base_url": "http://127.0.0.1:1/v1", "model": IDENTITY.embedding_model}
        storages = {
            "postgres": {"type": "external", "external": {"dsn": to, "embedding_dims": DIMS}},
            "local": {"local": {"path": str(to)}},
        }
        settings = validate(
            {
                "store": {"name": IDENTITY.store},
                "storage": storages[backend],
                "models": {"summarization": model, "embedding": model},
                "short_term": {"token_budget": 20},
                "medium_term": {"enabled": True},
                "max_read_scope": "user",
                **changes,
            }
        )
        storage = storage_of(settings)
        words = WordModel()

        def count(text: str) -> int:
            return max(1, len(text.split()))

        housekeeping = Housekeeping(storage, settings.retention, Instruments())
        workers = Workers(storage, words, words, count, concurrency=2, max_retries=2)
        memory = Memory(settings, storage, words, count, workers.wake)
        app = create_app(Parts(settings, storage, memory, workers, housekeeping))
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        async with (
            app.router.lifespan_context(app),
            httpx.AsyncClient(transport=transport, base_url="http://service") as client,
        ):
            yield Service(client, words, settings)

    return start_one


@pytest.fixture
async def service(start: ServiceFactory) -> AsyncIterator[Service]:
    """A ready service with a window of 20 words."""
    async with start() as started:

        async def ready() -> bool:
            return (await started.client.get("/readyz")).status_code == 200

        await started.until(ready)
        yield started
