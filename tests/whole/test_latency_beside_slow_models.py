"""Models that hang or are slow for some users take no time from the others.

Rounds with and without them alternate in one run, so that whatever else the machine does falls on
both. A run that a busy machine has spoilt is repeated, twice at most.
"""

import itertools
import statistics
import time
from dataclasses import dataclass, field

import httpx
import pytest

from kaos_dev.model_server import Behaviour, ModelServer

from ..service.storage.driving import fetch
from .conftest import until

AGENT = "kaos://agent/support/helper"
CONCURRENCY = 4
ROUNDS = 6
"""Of each kind."""
CALLS = 40
"""Of each operation in a round."""
MOST = 1.2
"""The median beside busy models, divided by the median beside idle ones."""
REPETITIONS = 2
WINDOW = 400
"""Tokens of the window that a recall asks for: the same however much was written before."""


_number = itertools.count()


@dataclass
class Seconds:
    """How long calls of one operation took."""

    beside_idle: list[float] = field(default_factory=list[float])
    beside_busy: list[float] = field(default_factory=list[float])

    @property
    def ratio(self) -> float:
        """Of the medians."""
        return statistics.median(self.beside_busy) / statistics.median(self.beside_idle)


@pytest.fixture
def environment(environment: dict[str, str]) -> dict[str, str]:
    """A window that the user who is measured does not fill."""
    return environment | {
        "KAOS_MEMORY_SHORT_TERM_TOKEN_BUDGET": "20000",
        "KAOS_MEMORY_LONG_TERM_EXTRACTION_CONCURRENCY": str(CONCURRENCY),
    }


def who(principal: str) -> dict[str, str]:
    return {"principal": principal, "agent_client_id": AGENT, "session_id": "s-1"}


async def write(client: httpx.AsyncClient, principal: str, *contents: str, infer: bool) -> None:
    turns = [{"role": "user", "content": content} for content in contents]
    body = {"attribution": who(principal), "turns": turns, "infer": infer}
    answer = await client.post("/v1/write", json=body)
    assert answer.json()["accepted"] is True


async def close(client: httpx.AsyncClient, principal: str) -> None:
    scope = {"level": "session"} | who(principal)
    answer = await client.post("/v1/sessions/close", json={"scope": scope})
    assert answer.json()["scheduled"] is True


async def recall(client: httpx.AsyncClient) -> None:
    # A query of its own each time: none is answered from the cache of embeddings.
    query = f"How was the harvest of field {next(_number)}?"
    scope = {"level": "session"} | who("alice")
    body = {"scope": scope, "query": query, "short_term_token_budget": WINDOW}
    answer = (await client.post("/v1/recall", json=body)).json()
    assert answer["degraded"] is False
    assert len(answer["long_term"]["facts"]) == 10
    assert answer["short_term"]["window"] != []


class Run:
    """One measurement: an own user, and others whose models are busy in every second round."""

    def __init__(
        self, client: httpx.AsyncClient, models: ModelServer, admin_dsn: str, busy: Behaviour
    ) -> None:
        self._client = client
        self._models = models
        self._admin_dsn = admin_dsn
        self._busy = busy
        self.writes = Seconds()
        self.recalls = Seconds()

    async def measure(self) -> None:
        """Take all rounds; which kind comes first alternates too."""
        for number in range(ROUNDS):
            for busy in (True, False) if number % 2 else (False, True):
                if busy:
                    await self._occupy()
                await self._round(
                    self.writes.beside_busy if busy else self.writes.beside_idle,
                    self.recalls.beside_busy if busy else self.recalls.beside_idle,
                )
                if busy:
                    assert not await self._worked_off()
                    await self._let_go()

    async def _round(self, writes: list[float], recalls: list[float]) -> None:
        for _ in range(CALLS):
            started = time.perf_counter()
            await write(self._client, "alice", f"This is line {next(_number)}.", infer=True)
            written = time.perf_counter()
            await recall(self._client)
            writes.append(written - started)
            recalls.append(time.perf_counter() - written)

    async def _occupy(self) -> None:
        """Have as many extractions in flight as there may be, and more of them due."""
        self._models.script(self._busy)
        for _ in range(2 * CONCURRENCY):
            principal = f"busy-{next(_number)}"
            await write(self._client, principal, f"I sow field {next(_number)}.", infer=True)
            await close(self._client, principal)

        async def occupied() -> bool:
            return self._in_flight() == CONCURRENCY

        await until(occupied)

    async def _let_go(self) -> None:
        self._models.reset()
        await until(self._worked_off)

    async def _worked_off(self) -> bool:
        return not await fetch(self._admin_dsn, "SELECT 1 FROM work WHERE NOT waiting")

    def _in_flight(self) -> int:
        return sum(request.status is None for request in self._models.requests.all("chat"))


@pytest.fixture
async def prepared(client: httpx.AsyncClient, admin_dsn: str) -> httpx.AsyncClient:
    """Alice has facts, and whatever is done once only has been done."""
    await write(client, "alice", *(f"I sow field {n}." for n in range(50)), infer=False)
    await close(client, "alice")

    async def remembered() -> bool:
        return len(await fetch(admin_dsn, "SELECT 1 FROM facts")) == 50

    await until(remembered)
    for _ in range(20):
        await recall(client)
    return client


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "busy",
    [
        Behaviour(endpoint="chat", times=None, hang=True),
        Behaviour(endpoint="chat", times=None, delay_seconds=5),
    ],
    ids=["hanging", "slow"],
)
async def test_unrelated_recall_and_write_take_no_longer_beside_busy_models(
    prepared: httpx.AsyncClient, models: ModelServer, admin_dsn: str, busy: Behaviour
):
    found: list[tuple[float, float]] = []
    while len(found) <= REPETITIONS:
        run = Run(prepared, models, admin_dsn, busy)
        await run.measure()
        found.append((run.writes.ratio, run.recalls.ratio))
        if max(found[-1]) <= MOST:
            return
    pytest.fail(f"median ratios of write and recall, for each repetition: {found}")
