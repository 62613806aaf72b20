"""An erasure between two requests of one piece of work, with the real engines and a server."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Literal

import pytest
from pydantic import SecretStr

from kaos_dev.model_server import CHAT_MODEL, Behaviour, ModelServer
from kaos_dev.model_server.script import RecordedRequest
from kaos_memory.contract import ScopeLevel
from kaos_memory.engine.mem0_extractor import Mem0Extractor
from kaos_memory.engine.models import OpenAIEmbedder
from kaos_memory.engine.summariser import ChatSummariser
from kaos_memory.engine.tokens import count_tokens
from kaos_memory.settings import Model
from kaos_memory.storage.protocol import Storage
from kaos_memory.tiers.memory import NewTurn
from kaos_memory.tiers.reach import Owners, Reach
from kaos_memory.work.workers import Workers

from ..service.conftest import StorageFactory
from ..service.storage.driving import ALICE
from .conftest import MODEL_DIMS

SECRET = "The password of the garden gate is marigold."
HERS = Reach(ScopeLevel.USER, Owners(ALICE.principal), None)


@pytest.fixture
async def remembering(
    make_storage: StorageFactory, empty_dsn: str, models: ModelServer
) -> AsyncIterator[tuple[Storage, Workers]]:
    """A storage, and workers whose models are behind the server."""
    storage = make_storage(dims=MODEL_DIMS, to=empty_dsn)
    await storage.open()
    key = SecretStr(models.api_key)
    chat = Model(base_url=models.url, model=CHAT_MODEL, api_key=key)
    vectors = Model(base_url=models.url, model=f"hash-{MODEL_DIMS}", api_key=key)
    embedder, summariser = OpenAIEmbedder(vectors, MODEL_DIMS), ChatSummariser(chat, "")
    extractor = Mem0Extractor(chat, embedder)
    workers = Workers(storage, summariser, extractor, count_tokens, concurrency=2, max_retries=0)
    workers.start()
    yield storage, workers
    models.release()
    await workers.stop(grace_seconds=5)
    for engine in (embedder, summariser, extractor):
        await engine.aclose()
    await storage.close()


@pytest.mark.parametrize("endpoint", ["embeddings", "chat"])
async def test_after_its_erasure_was_answered_no_model_is_asked_about_it(
    remembering: tuple[Storage, Workers],
    models: ModelServer,
    endpoint: Literal["embeddings", "chat"],
):
    storage, workers = remembering
    models.script(Behaviour(endpoint=endpoint, times=None, hang=True, containing="marigold"))
    await storage.append(ALICE, [NewTurn("user", SECRET, 60) for _ in range(3)])
    workers.wake()

    def both_wait(requests: Sequence[RecordedRequest]) -> bool:
        asked = [request.prompt for request in requests if request.endpoint == endpoint]
        return sum("marigold" in prompt for prompt in asked) == (2 if endpoint == "chat" else 1)

    await asyncio.to_thread(models.requests.wait_for, both_wait)
    assert (await storage.erase(HERS, dry_run=False)).residue == 0
    models.reset()
    await workers.stop(grace_seconds=20)
    assert [request.prompt for request in models.requests.all()] == []
