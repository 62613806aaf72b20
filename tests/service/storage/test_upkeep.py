"""Turns of claimants, leases that last, dead work, the day's tokens, and retention."""

from datetime import timedelta

import pytest

from kaos_memory.settings import Retention
from kaos_memory.storage.protocol import LeaseLost, Storage, WorkKind, WorkState
from kaos_memory.tiers.memory import Owner
from kaos_memory.tiers.reach import Owners

from ..conftest import Where
from .driving import ALICE, LEASE, account, fetch, turns, work_off

OVERFLOW = [str(n) for n in range(1, 7)]


async def test_claimants_take_turns_however_much_one_has(storage: Storage):
    for session in range(20):
        await storage.append(
            Owner("a-busy", "kaos://agent/ns/helper", f"{session}"), turns(*OVERFLOW)
        )
    for name in ("b", "c"):
        await storage.append(Owner(name, ALICE.agent, "s"), turns(*OVERFLOW))
    served = [lease.principal for _ in range(6) if (lease := await storage.claim(LEASE))]
    assert served == ["a-busy", "b", "c"] * 2
    assert [(await storage.claim(LEASE)).principal for _ in range(2)] == ["a-busy"] * 2  # pyright: ignore[reportOptionalMemberAccess]


async def test_agents_that_act_for_nobody_take_turns_too(storage: Storage):
    for agent, sessions in (("kaos://agent/ns/a", 5), ("kaos://agent/ns/b", 1)):
        for session in range(sessions):
            await storage.append(Owner("", agent, f"{session}"), turns(*OVERFLOW))
    served = [lease.agent[-1] for _ in range(2) if (lease := await storage.claim(LEASE))]
    assert served == ["a", "b"]


async def test_only_the_kind_that_is_asked_for_is_claimed(storage: Storage):
    await storage.append(ALICE, turns(*OVERFLOW))
    lease = await storage.claim(LEASE, WorkKind.FOLD)
    assert lease is not None
    assert lease.kind is WorkKind.FOLD
    assert await storage.claim(LEASE, WorkKind.FOLD) is None


async def test_a_renewed_lease_is_not_taken_over(storage: Storage, where: Where):
    await storage.append(ALICE, turns(*OVERFLOW))
    lease = await storage.claim(timedelta(0), WorkKind.FOLD)
    assert lease is not None
    await storage.renew(lease, LEASE)
    assert await storage.claim(LEASE, WorkKind.FOLD) is None
    await fetch(where, "UPDATE work SET run_after = now()")
    assert await storage.claim(LEASE, WorkKind.FOLD) is not None
    with pytest.raises(LeaseLost):
        await storage.renew(lease, LEASE)


async def dead(storage: Storage, kind: WorkKind) -> int:
    lease = await storage.claim(LEASE, kind)
    assert lease is not None
    await storage.fail(lease, "prose", None)
    return lease.session_ref


async def test_dead_work_is_listed_with_its_reason_and_revived(storage: Storage):
    await storage.append(ALICE, turns(*OVERFLOW))
    ref = await dead(storage, WorkKind.EXTRACT)
    [item] = await storage.work_items([WorkState.DEAD], 10)
    assert (item.ref, item.last_error, item.failures) == (f"{ref}:extract", "prose", 1)
    assert (item.principal, item.agent) == (ALICE.principal, ALICE.agent)
    assert await storage.retry_work(ref, WorkKind.FOLD) is False
    assert await storage.retry_work(ref, WorkKind.EXTRACT) is True
    assert await storage.work_items([WorkState.DEAD], 10) == []
    await work_off(storage)
    assert len(await storage.newest_facts(Owners(ALICE.principal), 10)) == 4


@pytest.mark.parametrize("kind", WorkKind)
async def test_dropped_work_passes_over_its_turns(storage: Storage, where: Where, kind: WorkKind):
    await storage.append(ALICE, turns(*OVERFLOW))
    ref = await dead(storage, kind)
    assert await storage.drop_work(ref, kind) is True
    assert await storage.drop_work(ref, kind) is False
    await work_off(storage)
    found = await account(where, ALICE)
    assert found.rows == [5, 6]
    found.check()


async def test_work_that_is_not_dead_cannot_be_dropped(storage: Storage, where: Where):
    await storage.append(ALICE, turns(*OVERFLOW))
    [row] = await fetch(where, "SELECT id FROM sessions")
    assert await storage.drop_work(row["id"], WorkKind.EXTRACT) is False
    assert await storage.drop_work(row["id"] + 1, WorkKind.EXTRACT) is False
    (await account(where, ALICE)).check()


async def test_work_is_counted_by_kind_and_state(storage: Storage, where: Where):
    await storage.append(ALICE, turns(*OVERFLOW))
    await dead(storage, WorkKind.FOLD)
    await storage.append(Owner("bob", ALICE.agent, "s"), turns("one"))
    await fetch(
        where,
        "UPDATE work SET run_after = now() - interval '1 minute' "
        "WHERE kind = 'extract' AND NOT waiting",
    )
    counts = {(c.kind, c.state): (c.count, c.oldest_seconds) for c in await storage.work_summary()}
    assert counts[WorkKind.FOLD, WorkState.DEAD][0] == 1
    assert counts[WorkKind.EXTRACT, WorkState.WAITING] == (1, 0)
    count, oldest = counts[WorkKind.EXTRACT, WorkState.DUE]
    assert count == 1
    assert 60 <= oldest < 70


async def test_tokens_add_up_over_the_day(storage: Storage, where: Where):
    assert await storage.spend(30) == 30
    assert await storage.spend(12) == 42
    await fetch(where, "UPDATE token_usage SET day = day - 1")
    assert await storage.spend(0) == 0


async def test_records_over_age_are_deleted_and_counted(storage: Storage, where: Where):
    for _ in range(3):
        await storage.append(ALICE, turns(*OVERFLOW))
        await work_off(storage)
    await fetch(
        where, "UPDATE facts SET updated_at = now() - interval '8 days' WHERE text LIKE '%1'"
    )
    await fetch(where, "UPDATE digests SET created_at = now() - interval '8 days'")
    await fetch(
        where,
        "INSERT INTO idempotency VALUES ($1, $2, false, now() - interval '2 days')",
        *(b"key", b"body"),
    )
    await fetch(
        where,
        "INSERT INTO erasures (level, sessions, turns, digests, facts, residue, erased_at) "
        "VALUES ('store', 0, 0, 0, 0, 0, now() - interval '8 days')",
    )
    [(digests,)] = await fetch(where, "SELECT count(*) FROM digests")
    kept = await storage.retain(Retention(), 100)
    assert kept == {"idempotency_keys": 1}
    week = Retention(facts_days=7, digests_days=7, receipts_days=7)
    assert await storage.retain(week, 1) == {
        "facts": 1, "digests": 1, "receipts": 1, "idempotency_keys": 0
    }  # fmt: skip
    assert await storage.retain(week, 100) == {
        "facts": 0, "digests": digests - 2, "receipts": 0, "idempotency_keys": 0
    }  # fmt: skip
    [(left,)] = await fetch(where, "SELECT max(version) = min(version) FROM digests")
    assert left
