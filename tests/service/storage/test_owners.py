"""Every method that is asked about an owner answers about that owner alone."""

from uuid import uuid4

import pytest

from kaos_memory.contract import ScopeLevel
from kaos_memory.storage.protocol import Storage, WorkKind
from kaos_memory.tiers.memory import Owner
from kaos_memory.tiers.reach import Owners, Reach

from .driving import ALICE, BOB, LEASE, embedding, turns, work_off

HERS, HIS = (Owners(owner.principal, owner.agent, owner.session) for owner in (ALICE, BOB))


@pytest.fixture
async def shared(storage: Storage) -> Storage:
    """Alice and Bob in a session of the same name with the same agent, in all tiers."""
    for owner in (ALICE, BOB):
        said = [f"{owner.principal} {n}" for n in range(6)]
        await storage.append(owner, turns(*said))
    await work_off(storage)
    return storage


async def facts_of(storage: Storage, owners: Owners) -> set[str]:
    return {fact.principal for fact in (await storage.list_facts(owners, 100, None))[0]}


async def test_windows_and_digests(shared: Storage):
    [found] = await shared.conversations(HERS, 1_000)
    assert found.principal == "alice"
    assert [turn.content for turn in found.turns] == ["alice 4", "alice 5"]


async def test_lists_of_facts(shared: Storage):
    assert await facts_of(shared, HERS) == {"alice"}
    assert {fact.principal for fact in await shared.newest_facts(HERS, 100)} == {"alice"}
    first, cursor = await shared.list_facts(HIS, 1, None)
    rest, _ = await shared.list_facts(HERS, 100, cursor)  # another's cursor is only a place
    assert {fact.principal for fact in first} == {"bob"}
    assert {fact.principal for fact in rest} <= {"alice"}


async def test_searches(shared: Storage):
    found = await shared.search(HERS, "bob", embedding(1), 100, None)
    assert {fact.principal for fact in found} == {"alice"}
    assert all("bob" not in each.text for each in await shared.neighbours(ALICE, embedding(1), 100))


async def test_single_facts(shared: Storage):
    [his, *_] = await shared.newest_facts(HIS, 1)
    assert await shared.fact(HERS, his.id) is None
    assert await shared.fact(HERS, uuid4()) is None
    assert await shared.erase_fact(HERS, his.id) is None
    assert await shared.fact(HIS, his.id) is not None


async def test_closing_a_session(shared: Storage):
    assert await shared.close_sessions(HERS) is True
    lease = await shared.claim(LEASE, WorkKind.EXTRACT)
    assert lease is not None
    assert lease.principal == "alice"
    assert await shared.claim(LEASE, WorkKind.EXTRACT) is None


async def test_erasing(shared: Storage):
    before = await shared.conversations(HIS, 1_000)
    for reach in (
        Reach(ScopeLevel.SESSION, HERS, None),
        Reach(ScopeLevel.AGENT, Owners("alice", ALICE.agent), None),
        Reach(ScopeLevel.USER, Owners("alice"), None),
    ):
        await shared.erase(reach, dry_run=False)
    assert await shared.conversations(HERS, 1_000) == []
    assert await facts_of(shared, HERS) == set()
    assert await shared.conversations(HIS, 1_000) == before
    assert await facts_of(shared, HIS) == {"bob"}


async def test_work_is_about_one_session(storage: Storage):
    other = Owner("alice", ALICE.agent, "s-2")
    for owner in (ALICE, BOB, other):
        await storage.append(
            owner, turns(*(f"{owner.principal} {owner.session}" for _ in "123456"))
        )
    seen = 0
    while (lease := await storage.claim(LEASE)) is not None:
        batch = await storage.load(lease)
        assert batch is not None
        said = f"{batch.owner.principal} {batch.owner.session}"
        assert {turn.content for turn in batch.turns} == {said}
        seen += 1
    assert seen == 6
