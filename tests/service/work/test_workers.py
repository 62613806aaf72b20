"""The workers: what they do with answers, failures and the end of the process."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable
from datetime import timedelta
from typing import Any

import pytest

from kaos_memory.engine.protocols import ModelError, ModelUnavailable
from kaos_memory.engine.usage import TokenMeter
from kaos_memory.storage.protocol import Storage
from kaos_memory.work.workers import Workers, backoff

from ..api.conftest import WordModel
from ..conftest import Where
from ..storage.driving import ALICE, account, fetch, turns

OVERFLOW = ("1", "2", "3", "4", "5", "6")


class Model(WordModel):
    """Raises what a test says, so often as it says."""

    def __init__(self) -> None:
        super().__init__()
        self.raises: list[Exception] = []
        self.calls = 0
        self.in_flight = 0
        self.most_in_flight = 0

    async def _answer(self) -> None:
        self.calls += 1
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            await self.slow.wait()
            if self.raises:
                raise self.raises.pop(0)
        finally:
            self.in_flight -= 1


Start = Callable[..., contextlib.AbstractAsyncContextManager[Workers]]


@pytest.fixture
def model() -> Model:
    return Model()


@pytest.fixture
def start(storage: Storage, model: Model, monkeypatch: pytest.MonkeyPatch) -> Start:
    monkeypatch.setattr("kaos_memory.work.workers.POLL_SECONDS", 0.02)
    monkeypatch.setattr("kaos_memory.work.workers._FIRST_RETRY_SECONDS", 0.01)

    @contextlib.asynccontextmanager
    async def run(
        *, concurrency: int = 1, max_retries: int = 2, **more: Any
    ) -> AsyncGenerator[Workers]:
        workers = Workers(
            storage,
            model,
            model,
            len,
            concurrency=concurrency,
            max_retries=max_retries,
            **more,
        )
        workers.start()
        yield workers
        await workers.stop(5)

    return run


async def until(where: Where, query: str) -> None:
    async with asyncio.timeout(10):
        while not await fetch(where, query):  # noqa: ASYNC110 - workers bring it about
            await asyncio.sleep(0.01)


NO_WORK = "SELECT 1 WHERE NOT EXISTS (SELECT 1 FROM work WHERE NOT waiting)"


async def test_work_that_fails_is_tried_again_until_it_succeeds(
    storage: Storage, model: Model, start: Start, where: Where
):
    model.raises = [ModelError("prose")] * 2
    async with start():
        await storage.append(ALICE, turns(*OVERFLOW))
        await until(where, NO_WORK)
    found = await account(where, ALICE)
    found.check()
    assert found.rows == [5, 6]


async def test_after_its_retries_failed_work_is_dead_and_keeps_its_turns(
    storage: Storage, model: Model, start: Start, where: Where
):
    model.raises = [ModelError("prose")] * 6
    async with start(max_retries=2):
        await storage.append(ALICE, turns(*OVERFLOW))
        await until(where, "SELECT 1 FROM work WHERE dead GROUP BY dead HAVING count(*) = 2")
    assert model.calls == 6
    found = await account(where, ALICE)
    found.check()
    assert found.rows == [1, 2, 3, 4, 5, 6]
    rows = await fetch(where, "SELECT DISTINCT last_error FROM work")
    assert [row[0] for row in rows] == ["prose"]


async def test_an_endpoint_that_is_away_kills_no_work_however_long(
    storage: Storage, model: Model, start: Start, where: Where
):
    model.raises = [ModelUnavailable("away")] * 12
    async with start(max_retries=0):
        await storage.append(ALICE, turns(*OVERFLOW))
        await until(where, NO_WORK)
    assert model.calls >= 14
    (await account(where, ALICE)).check()


async def test_a_defect_in_one_piece_of_work_does_not_end_the_worker(
    storage: Storage, model: Model, start: Start, where: Where
):
    model.raises = [RuntimeError("defect")]
    async with start():
        await storage.append(ALICE, turns(*OVERFLOW))
        await until(where, NO_WORK)


async def test_turns_without_words_need_no_model_and_do_not_stop_a_digest(
    storage: Storage, start: Start, where: Where
):
    async with start():
        await storage.append(ALICE, turns("first", "second", *[""] * 8, "last"))
        await until(where, NO_WORK)
        await storage.append(ALICE, turns(*["  "] * 8))
        await until(where, NO_WORK)
    found = await account(where, ALICE)
    found.check()
    [row] = await fetch(where, "SELECT summary FROM digests ORDER BY version DESC LIMIT 1")
    assert row["summary"].startswith("first second")


async def test_no_more_calls_are_in_flight_than_the_concurrency(
    storage: Storage, model: Model, start: Start, where: Where
):
    model.slow.clear()
    async with start(concurrency=3) as workers:
        for number in range(6):
            owner = type(ALICE)("alice", ALICE.agent, f"s-{number}")
            await storage.append(owner, turns(*OVERFLOW))
        workers.wake()
        async with asyncio.timeout(10):
            while model.in_flight < 3:  # noqa: ASYNC110 - workers bring it about
                await asyncio.sleep(0.01)
        await asyncio.sleep(0.1)
        model.slow.set()
        await until(where, NO_WORK)
    assert model.most_in_flight == 3


async def test_at_the_end_work_that_takes_too_long_is_given_back(
    storage: Storage, model: Model, start: Start, where: Where
):
    model.slow.clear()
    async with start() as workers:
        await storage.append(ALICE, turns(*OVERFLOW))
        workers.wake()
        async with asyncio.timeout(10):
            while not model.in_flight:  # noqa: ASYNC110 - workers bring it about
                await asyncio.sleep(0.01)
        await workers.stop(0.05)
    rows = await fetch(where, "SELECT 1 FROM work WHERE lease IS NULL AND run_after <= now()")
    assert len(rows) == 2
    (await account(where, ALICE)).check()


async def test_a_long_call_keeps_its_lease(
    storage: Storage, model: Model, start: Start, where: Where
):
    model.slow.clear()
    async with start(lease_for=timedelta(milliseconds=300)), start():
        await storage.append(ALICE, turns(*OVERFLOW))
        async with asyncio.timeout(10):
            while model.in_flight < 2:  # noqa: ASYNC110 - workers bring it about
                await asyncio.sleep(0.01)
        await asyncio.sleep(1)  # three times the lease
        assert model.calls == 2
        model.slow.set()
        await until(where, NO_WORK)
    assert model.calls == 2
    (await account(where, ALICE)).check()


async def test_work_is_left_as_soon_as_its_lease_is_lost(
    storage: Storage, model: Model, start: Start, where: Where
):
    model.slow.clear()
    async with start(lease_for=timedelta(milliseconds=300)):
        await storage.append(ALICE, turns(*OVERFLOW))
        async with asyncio.timeout(10):
            while not model.in_flight:  # noqa: ASYNC110 - workers bring it about
                await asyncio.sleep(0.01)
            await fetch(
                where,
                "UPDATE work SET lease = gen_random_uuid(), run_after = now() + interval '1 hour'",
            )
            while model.in_flight:  # noqa: ASYNC110 - workers bring it about
                await asyncio.sleep(0.01)
    assert len(await fetch(where, "SELECT 1 FROM work WHERE lease IS NOT NULL")) == 2


async def test_a_spent_budget_pauses_extraction_but_neither_writes_nor_digests(
    storage: Storage, start: Start, where: Where, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("kaos_memory.work.budget.LOOK_SECONDS", 0.05)
    await storage.spend(100)
    async with start(daily_token_budget=100):
        assert (await storage.append(ALICE, turns(*OVERFLOW))).scheduled is True
        await until(where, "SELECT 1 FROM sessions WHERE folded_through = 4")
        await asyncio.sleep(0.2)
        assert await fetch(where, "SELECT 1 FROM facts") == []
        await fetch(where, "UPDATE token_usage SET day = day - 1")  # midnight
        await until(where, NO_WORK)
    assert len(await fetch(where, "SELECT 1 FROM facts")) == 4


async def test_what_models_took_is_charged_to_the_day(storage: Storage, start: Start, where: Where):
    meter = TokenMeter()
    meter.add(70)
    async with start(meter=meter):
        await storage.append(ALICE, turns(*OVERFLOW))
        await until(where, "SELECT 1 FROM token_usage WHERE tokens = 70")


def test_waits_double_up_to_five_minutes_and_keep_to_a_longer_wish():
    for attempt, longest in ((1, 1), (2, 2), (5, 16), (30, 300), (10_000, 300)):
        wait = backoff(attempt).total_seconds()
        assert longest / 2 <= wait <= longest
    assert backoff(1, 42).total_seconds() == 42
    assert backoff(1, 9_999).total_seconds() == 300
