"""Exactly once: a commit counts only if nothing that it relied on has changed."""

import asyncio
from collections import Counter
from dataclasses import dataclass
from datetime import timedelta

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kaos_memory.contract import ScopeLevel
from kaos_memory.storage.protocol import Batch, Lease, LeaseLost, Storage, WorkKind
from kaos_memory.tiers.memory import Owner
from kaos_memory.tiers.reach import Owners, Reach

from ..conftest import Where
from .driving import (
    ALICE,
    BOB,
    LEASE,
    account,
    commit,
    dump,
    fetch,
    make_idle,
    new_fact,
    turns,
    work_off,
)

OVERFLOW = ("1", "2", "3", "4", "5", "6")
NOW = timedelta(seconds=-1)
"""A lease that has already run out."""


async def claimed(storage: Storage, kind: WorkKind, lease_for: timedelta = LEASE) -> Batch:
    """The batch of the due work of one kind."""
    leases: list[Lease] = []
    while (lease := await storage.claim(lease_for)) is not None:
        if lease.kind is kind:
            batch = await storage.load(lease)
            assert batch is not None
            for other in leases:
                await storage.release(other)
            return batch
        leases.append(lease)
    raise AssertionError(f"no {kind} is due")


def user(principal: str) -> Reach:
    return Reach(ScopeLevel.USER, Owners(principal), None)


async def test_two_replicas_never_hold_the_same_work(storage: Storage):
    await storage.append(ALICE, turns(*OVERFLOW))
    leases = await asyncio.gather(*(storage.claim(LEASE) for _ in range(6)))
    held = [lease for lease in leases if lease is not None]
    assert Counter(lease.kind for lease in held) == {WorkKind.FOLD: 1, WorkKind.EXTRACT: 1}


@pytest.mark.parametrize("kind", list(WorkKind))
async def test_after_a_takeover_only_the_new_holder_commits(
    storage: Storage, where: Where, kind: WorkKind
):
    await storage.append(ALICE, turns(*OVERFLOW))
    late = await claimed(storage, kind, lease_for=NOW)
    current = await claimed(storage, kind)
    with pytest.raises(LeaseLost):
        await commit(storage, late)
    await commit(storage, current)
    with pytest.raises(LeaseLost):
        await commit(storage, current)
    (await account(where, ALICE)).check()


@pytest.mark.parametrize("kind", list(WorkKind))
async def test_an_erasure_during_the_model_call_leaves_nothing_to_commit_to(
    storage: Storage, where: Where, kind: WorkKind
):
    await storage.append(ALICE, turns(*OVERFLOW))
    batch = await claimed(storage, kind)
    receipt = await storage.erase(user("alice"), dry_run=False)
    assert receipt.residue == 0
    await storage.append(ALICE, turns(*OVERFLOW))  # she goes on talking in the same session
    before = await dump(where)
    with pytest.raises(LeaseLost):
        await commit(storage, batch)
    assert await dump(where) == before


async def test_an_erasure_of_one_session_makes_work_on_the_others_be_done_again(
    storage: Storage, where: Where
):
    other = Owner("alice", ALICE.agent, "s-2")
    await storage.append(other, turns(*OVERFLOW))
    batch = await claimed(storage, WorkKind.EXTRACT)
    covered = Reach(ScopeLevel.SESSION, Owners("alice", ALICE.agent, "s-1"), None)
    await storage.erase(covered, dry_run=False)
    with pytest.raises(LeaseLost):
        await commit(storage, batch)
    await storage.release(batch.lease)
    await work_off(storage)
    (await account(where, other)).check()


async def test_an_erasure_of_somebody_else_does_not_disturb(storage: Storage):
    await storage.append(ALICE, turns(*OVERFLOW))
    batch = await claimed(storage, WorkKind.EXTRACT)
    await storage.erase(user("bob"), dry_run=False)
    await commit(storage, batch)


async def test_a_success_forgives_earlier_failures(storage: Storage):
    await storage.append(ALICE, turns(*OVERFLOW))
    batch = await claimed(storage, WorkKind.FOLD)
    await storage.fail(batch.lease, "prose", NOW)
    again = await claimed(storage, WorkKind.FOLD)
    assert (again.lease.attempt, again.lease.failures) == (2, 1)
    await storage.append(ALICE, turns("7", "8", "9", "10"))
    await commit(storage, again)
    fresh = await claimed(storage, WorkKind.FOLD)
    assert (fresh.lease.attempt, fresh.lease.failures) == (1, 0)


async def test_writes_and_erasures_side_by_side_leave_only_what_came_after(
    storage: Storage, where: Where
):
    await asyncio.gather(
        *(storage.append(ALICE, turns(f"turn {n}")) for n in range(20)),
        storage.erase(user("alice"), dry_run=False),
        *(storage.append(BOB, turns(f"turn {n}")) for n in range(20)),
    )
    await storage.erase(user("alice"), dry_run=False)
    assert not await fetch(where, "SELECT 1 FROM sessions WHERE principal = 'alice'")
    assert len(await fetch(where, "SELECT 1 FROM turns")) == 20
    assert (await account(where, BOB)).last == 20


async def test_failed_work_comes_back_after_its_wait_with_a_higher_attempt(
    storage: Storage,
):
    await storage.append(ALICE, turns(*OVERFLOW))
    batch = await claimed(storage, WorkKind.EXTRACT)
    assert batch.lease.attempt == 1
    await storage.fail(batch.lease, "model said nothing", NOW)
    again = await claimed(storage, WorkKind.EXTRACT)
    assert again.lease.attempt == 2
    await storage.fail(again.lease, "model said nothing", timedelta(minutes=5))
    with pytest.raises(AssertionError):
        await claimed(storage, WorkKind.EXTRACT)


async def test_dead_work_keeps_its_turns_and_its_reason(storage: Storage, where: Where):
    await storage.append(ALICE, turns(*OVERFLOW))
    batch = await claimed(storage, WorkKind.EXTRACT)
    await storage.fail(batch.lease, "model said nothing", None)
    await work_off(storage)
    await storage.append(ALICE, turns(*OVERFLOW))
    await work_off(storage)
    rows = await fetch(where, "SELECT dead, last_error FROM work WHERE kind = 'extract'")
    assert [tuple(row) for row in rows] == [(True, "model said nothing")]
    found = await account(where, ALICE)
    assert found.rows == list(range(1, 13))
    found.check()


async def test_released_work_is_due_at_once_and_was_no_attempt(storage: Storage):
    await storage.append(ALICE, turns(*OVERFLOW))
    batch = await claimed(storage, WorkKind.FOLD)
    await storage.release(batch.lease)
    assert (await claimed(storage, WorkKind.FOLD)).lease.attempt == 1


async def test_turns_written_during_the_model_call_are_due_after_its_commit(
    storage: Storage, where: Where
):
    await storage.append(ALICE, turns(*OVERFLOW))
    batch = await claimed(storage, WorkKind.FOLD)
    await storage.append(ALICE, turns("7", "8", "9", "10"))
    await commit(storage, batch)
    assert (await claimed(storage, WorkKind.FOLD)).turns[0].position == 5
    (await account(where, ALICE)).check()


async def test_identical_texts_in_one_extraction_are_one_fact(storage: Storage, where: Where):
    await storage.append(ALICE, turns(*OVERFLOW))
    batch = await claimed(storage, WorkKind.EXTRACT)
    await storage.commit_extraction(batch, [new_fact("same", [1.0] * 8)] * 3)
    assert len(await fetch(where, "SELECT 1 FROM facts")) == 1


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.sampled_from([ALICE, BOB]), st.integers(1, 8)),
        st.tuples(st.sampled_from(["close"]), st.sampled_from([ALICE, BOB]), st.none()),
        st.tuples(
            st.sampled_from(["commit", "fail", "crash", "idle", "release", "dead"]),
            st.none(),
            st.none(),
        ),
    ),
    min_size=5,
    max_size=40,
)


@settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(steps=STEPS)
async def test_any_sequence_of_writes_commits_failures_and_crashes_keeps_every_turn_once(
    steps: list[tuple[str, Owner | None, int | None]],
    storage: Storage,
    where: Where,
):
    written: Counter[str] = Counter()
    late: list[Late] = []
    for step, owner, count in steps:
        if owner is not None and count is not None:
            start = written[owner.principal]
            written[owner.principal] += count
            texts = [f"{start + n + 1}" for n in range(count)]
            await storage.append(owner, turns(*texts))
        elif owner is not None:
            await storage.close_sessions(Owners(owner.principal, owner.agent, owner.session))
        elif step == "idle":
            await make_idle(where)
        else:
            await _work_once(step, storage, late)
        for who in (ALICE, BOB):
            if written[who.principal]:
                (await account(where, who)).check()
    await fetch(where, "UPDATE work SET run_after = now(), dead = false")
    await make_idle(where)
    await work_off(storage)
    for who in (ALICE, BOB):
        if written[who.principal]:
            await _everything_is_known(storage, where, who, written[who.principal])
        await storage.erase(user(who.principal), dry_run=False)


@dataclass
class Late:
    """A batch whose model answers late."""

    batch: Batch
    lost: bool
    """Somebody else has claimed its work since then, or it is committed."""


async def _work_once(step: str, storage: Storage, late: list[Late]) -> None:
    lease = await storage.claim(NOW if step == "crash" else LEASE)
    if lease is None:
        return
    for each in late:
        claimed_again = (lease.session_ref, lease.kind)
        each.lost |= claimed_again == (each.batch.lease.session_ref, each.batch.lease.kind)
    batch = await storage.load(lease)
    if batch is None:
        return
    answering = list(late)
    if step == "fail":
        await storage.fail(lease, "scripted", timedelta(0))
    elif step == "dead":
        await storage.fail(lease, "scripted", None)
    elif step == "release":
        await storage.release(lease)
    elif step == "crash":
        late.append(Late(batch, lost=False))
    else:
        await commit(storage, batch)
        late.append(Late(batch, lost=True))
    for each in answering:
        late.remove(each)
        if each.lost:
            with pytest.raises(LeaseLost):
                await commit(storage, each.batch)
        else:
            await commit(storage, each.batch)


async def _everything_is_known(storage: Storage, where: Where, owner: Owner, written: int) -> None:
    found = await account(where, owner)
    found.check()
    assert found.last == written
    assert not found.pending
    assert found.extracted == list(range(1, written + 1))
    rows = await fetch(where, "SELECT text FROM facts WHERE principal = $1", owner.principal)
    said = {f"{owner.principal} said {n}" for n in found.extracted}
    assert {row["text"] for row in rows} == said
    [conversation] = await storage.conversations(
        Owners(owner.principal, owner.agent, owner.session), 10_000
    )
    assert conversation.digest == " ".join(map(str, found.digested))
