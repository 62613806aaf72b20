"""Sessions that end without leaving their window: idle, closed, or told in facts."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from kaos_memory.storage.protocol import Storage, WorkKind, WorkState
from kaos_memory.tiers.memory import NewTurn, Owner
from kaos_memory.tiers.reach import Owners

from ..conftest import StorageFactory, Where
from .driving import (
    ALICE,
    BOB,
    LEASE,
    account,
    commit,
    fetch,
    make_idle,
    turns,
    work_off,
)

NEW = Owner("carol", ALICE.agent, "s-1")
HERS = Owners(ALICE.principal, ALICE.agent, ALICE.session)

_MANY = """
    INSERT INTO sessions (principal, agent, session, last_position, window_tokens, window_turns,
                          last_turn_at, began_at)
    WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 5000)
    SELECT 'user-' || i, 'agent', 's-1', 1, 1, 1, now(), now() FROM n
"""


async def waiting(storage: Storage) -> int:
    return len(await storage.work_items([WorkState.WAITING], 10))


async def test_a_session_in_use_is_not_extracted(storage: Storage):
    assert (await storage.append(ALICE, turns("one", "two"))).scheduled is False
    assert await storage.claim(LEASE) is None
    assert await waiting(storage) == 1


async def test_an_idle_session_is_extracted_and_stays_in_its_window(storage: Storage, where: Where):
    await storage.append(ALICE, turns("one", "two"))
    await make_idle(where)
    await work_off(storage)
    assert len(await storage.newest_facts(HERS, 10)) == 2
    found = await account(where, ALICE)
    assert found.window == found.extracted == [1, 2]
    assert await fetch(where, "SELECT 1 FROM work") == []


async def test_a_turn_before_the_work_began_puts_it_off(storage: Storage, where: Where):
    await storage.append(ALICE, turns("one"))
    await fetch(where, "UPDATE work SET run_after = now()")  # as if ten minutes had passed
    await storage.append(ALICE, turns("two"))
    lease = await storage.claim(LEASE)
    assert lease is not None
    assert await storage.load(lease) is None
    [item] = await storage.work_items([WorkState.WAITING], 10)
    assert timedelta(minutes=9) < item.run_after - datetime.now(UTC) <= timedelta(minutes=10)


async def test_no_turn_is_extracted_twice_when_the_session_goes_on(storage: Storage, where: Where):
    await storage.append(ALICE, turns("1", "2", "3"))
    await make_idle(where)
    await work_off(storage)
    assert (await storage.append(ALICE, turns("4", "5", "6"))).scheduled is True  # over the mark
    lease = await storage.claim(LEASE)
    assert lease is not None
    while lease is not None:
        batch = await storage.load(lease)
        if batch is not None and batch.lease.kind is WorkKind.EXTRACT:
            assert [turn.position for turn in batch.turns] == [4]
        if batch is not None:
            await commit(storage, batch)
        lease = await storage.claim(LEASE)
    (await account(where, ALICE)).check()
    assert await waiting(storage) == 1


async def test_closing_makes_extraction_due_at_once(storage: Storage, where: Where):
    await storage.append(ALICE, turns("one"))
    await storage.append(BOB, turns("his"))
    assert await storage.close_sessions(HERS) is True
    await work_off(storage)
    assert await storage.close_sessions(HERS) is False
    assert [fact.principal for fact in await storage.newest_facts(Owners(), 10)] == ["alice"]
    (await account(where, ALICE)).check()


async def test_an_admin_closes_a_session_id_of_everybody(storage: Storage):
    await storage.append(ALICE, turns("hers"))
    await storage.append(BOB, turns("his"))
    assert await storage.close_sessions(Owners(session=ALICE.session)) is True
    assert await work_off(storage) == 2


async def test_an_admin_closes_a_session_id_of_very_many_at_once(storage: Storage, where: Where):
    await storage.append(ALICE, turns("hers"))
    await fetch(where, _MANY)
    async with asyncio.timeout(5):
        assert await storage.close_sessions(Owners(session=ALICE.session)) is True
    due = await fetch(where, "SELECT count(*) FROM work WHERE kind = 'extract' AND NOT waiting")
    left = await fetch(where, "SELECT count(*) FROM sessions WHERE closed_through < last_position")
    assert (due[0][0], left[0][0]) == (5_001, 0)


async def test_what_is_a_fact_already_is_due_at_once(storage: Storage):
    assert (await storage.append(ALICE, turns("tea", infer=False))).scheduled is True
    await work_off(storage)
    assert [fact.text for fact in await storage.newest_facts(HERS, 10)] == ["alice said tea"]


async def test_without_the_long_term_tier_nothing_waits(make_storage: StorageFactory):
    storage = make_storage(extract=False)
    await storage.open()
    await storage.append(ALICE, turns("tea", infer=False))
    assert await storage.close_sessions(HERS) is False
    assert await storage.work_summary() == []
    await storage.close()


async def test_a_turn_keeps_the_date_when_it_was_said(storage: Storage):
    said = datetime(2023, 5, 8, 13, 56, tzinfo=UTC)
    await storage.append(ALICE, [NewTurn("user", "tea", 1, said_at=said)])
    [conversation] = await storage.conversations(HERS, 100)
    assert conversation.turns[0].said_at == said
    assert conversation.turns[0].created_at > said


async def test_a_shorter_idle_time_reaches_the_sessions_that_wait(
    make_storage: StorageFactory, where: Where
):
    for idle_after in (timedelta(days=7), timedelta(hours=1), timedelta(hours=2)):
        storage = make_storage(idle_after=idle_after)
        await storage.open()
        await storage.append(ALICE, turns("one"))
        await storage.close()
    [row] = await fetch(
        where, "SELECT run_after - now() <= interval '1 hour' AS soon, waiting FROM work"
    )
    assert row["soon"]
    assert row["waiting"]


async def test_dead_work_is_not_scheduled_by_a_write_or_a_close(storage: Storage):
    await storage.append(ALICE, turns("one", infer=False))
    lease = await storage.claim(LEASE)
    assert lease is not None
    await storage.fail(lease, "broken", None)
    assert await storage.close_sessions(HERS) is False
    assert (await storage.append(ALICE, turns("two", infer=False))).scheduled is False
    # Over the mark a digest is due, whatever became of extraction.
    assert (await storage.append(ALICE, turns("3", "4", "5", "6"))).scheduled is True


async def test_work_that_is_due_or_leased_already_is_scheduled(storage: Storage):
    await storage.append(ALICE, turns("one", infer=False))
    assert await storage.close_sessions(HERS) is True
    assert await storage.claim(LEASE) is not None
    assert (await storage.append(ALICE, turns("two", infer=False))).scheduled is True


@pytest.mark.parametrize("fold", [True, False])
async def test_without_the_long_term_tier_no_model_reads_what_waits_and_with_it_again_all_of_it(
    make_storage: StorageFactory, where: Where, fold: bool
):
    storage = make_storage(fold=fold)
    await storage.open()
    await storage.append(ALICE, turns("one", "two"))
    await storage.close_sessions(HERS)
    await storage.append(BOB, turns("his"))
    await storage.close()
    await make_idle(where)

    off = make_storage(extract=False, fold=fold)
    await off.open()
    for _ in range(2):
        lease = await off.claim(LEASE)
        assert lease is not None
        assert await off.load(lease) is None
    assert await off.work_summary() == []
    await off.append(NEW, turns("written meanwhile"))
    await off.close()
    assert [(await account(where, owner)).extracted for owner in (ALICE, BOB)] == [[], []]
    await make_idle(where)

    storage = make_storage(fold=fold)
    await storage.open()
    assert await waiting(storage) == 3
    assert await work_off(storage) == 3
    found = await storage.newest_facts(Owners(), 10)
    assert {fact.text for fact in found} == {
        "alice said one", "alice said two", "bob said his", "carol said written meanwhile"
    }  # fmt: skip
    assert await fetch(where, "SELECT 1 FROM work") == []
    await storage.close()


async def test_without_the_long_term_tier_turns_that_left_the_window_wait_for_nothing(
    make_storage: StorageFactory, where: Where
):
    storage = make_storage(fold=False)
    await storage.open()
    await storage.append(ALICE, turns("1", "2", "3", "4", "5", "6"))
    await storage.close()
    off = make_storage(fold=False, extract=False)
    await off.open()
    assert await work_off(off) == 1
    found = await account(where, ALICE)
    assert found.rows == found.window
    assert await off.newest_facts(HERS, 10) == []
    await off.close()
