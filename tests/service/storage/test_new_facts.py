"""What an extraction stores: nothing that was erased, and when a fact was said last."""

import asyncio
import threading

import pytest

from kaos_memory.storage.protocol import Batch, Storage, WorkKind
from kaos_memory.tiers import lexical
from kaos_memory.tiers.memory import NewFact, Owner
from kaos_memory.tiers.reach import Owners

from ..conftest import Where
from .driving import ALICE, BOB, LEASE, embedding, fetch, new_fact, turns

TEA = "User likes tea"
LATER = Owner("alice", ALICE.agent, "s-2")
OTHER = Owner("alice", "kaos://agent/ns/other", "s-2")


async def loaded(storage: Storage, owner: Owner, *contents: str) -> Batch:
    """A batch of all turns of a session that were not extracted yet, these the last."""
    if contents:
        await storage.append(owner, turns(*contents, tokens=1))
    await storage.close_sessions(Owners(owner.principal, owner.agent, owner.session))
    lease = await storage.claim(LEASE, WorkKind.EXTRACT)
    assert lease is not None
    batch = await storage.load(lease)
    assert batch is not None
    return batch


async def erase(storage: Storage, owner: Owner, *, agents: bool = False) -> None:
    """Delete the fact of an owner, for one agent or for all."""
    owners = Owners(owner.principal, None if agents else owner.agent)
    [fact] = await storage.newest_facts(Owners(owner.principal, owner.agent, owner.session), 10)
    assert await storage.erase_fact(owners, fact.id) is not None


async def sessions(storage: Storage) -> set[tuple[str, str, str]]:
    """Whose facts there are."""
    found, _ = await storage.list_facts(Owners(), 100, None)
    return {(fact.principal, fact.agent, fact.session) for fact in found}


@pytest.mark.parametrize("agents", [False, True])
async def test_an_erased_fact_does_not_come_back_from_turns_that_are_older(
    storage: Storage, agents: bool
):
    for owner in (LATER, BOB, OTHER):
        await storage.append(owner, turns("I like tea"))
    await storage.commit_extraction(await loaded(storage, ALICE, "tea"), [new_fact(TEA)])
    await erase(storage, ALICE, agents=agents)
    for owner in (LATER, BOB, OTHER):
        facts = [new_fact(TEA), new_fact(f"{owner.principal} likes milk", embedding(1))]
        await storage.commit_extraction(await loaded(storage, owner), facts)
    found, _ = await storage.list_facts(Owners(), 100, None)
    left = {(fact.principal, fact.agent) for fact in found if fact.text == TEA}
    others = set() if agents else {(OTHER.principal, OTHER.agent)}
    assert left == {(BOB.principal, BOB.agent)} | others
    assert len(found) == len(left) + 3


async def test_an_erased_fact_that_is_said_again_is_a_fact_again(storage: Storage):
    await storage.commit_extraction(await loaded(storage, ALICE, "tea"), [new_fact(TEA)])
    await erase(storage, ALICE)
    batch = await loaded(storage, ALICE, "still tea")
    at = batch.turns[0].position
    again = NewFact(TEA, embedding(0), at, at, batch.turns[0].said_at)
    await storage.commit_extraction(batch, [again])
    assert await sessions(storage) == {("alice", ALICE.agent, "s-1")}


async def test_a_fact_that_may_come_from_an_older_turn_stays_erased(storage: Storage):
    await storage.append(LATER, turns("I like tea"))
    await storage.commit_extraction(await loaded(storage, ALICE, "tea"), [new_fact(TEA)])
    await erase(storage, ALICE)
    batch = await loaded(storage, LATER, "and rain")
    first, last = batch.turns
    both = NewFact(TEA, embedding(0), first.position, last.position, last.said_at)
    await storage.commit_extraction(batch, [both])
    assert await sessions(storage) == set()


async def test_a_known_fact_that_is_repeated_is_as_fresh_as_a_new_one(
    storage: Storage, where: Where
):
    for owner in (ALICE, LATER, BOB):
        await storage.commit_extraction(await loaded(storage, owner, "tea"), [new_fact(TEA)])
    await fetch(where, "UPDATE facts SET updated_at = now() - interval '30 days'")
    await storage.commit_extraction(
        await loaded(storage, ALICE, "tea"), [], {new_fact(TEA).hash, new_fact("unknown").hash}
    )
    fresh = await fetch(
        where,
        "SELECT principal, session FROM facts WHERE updated_at > now() - interval '1 minute'",
    )
    assert [tuple(row) for row in fresh] == [("alice", "s-1")]


async def test_the_words_of_facts_are_computed_beside_the_loop_and_before_the_transaction(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
):
    batch = await loaded(storage, ALICE, "tea")
    reached, go_on = threading.Event(), threading.Event()
    terms = lexical.terms

    def slow(text: str) -> bytes:
        reached.set()
        assert go_on.wait(10)
        return terms(text)

    monkeypatch.setattr("kaos_memory.tiers.lexical.terms", slow)
    committing = asyncio.create_task(storage.commit_extraction(batch, [new_fact(TEA)]))
    assert await asyncio.to_thread(reached.wait, 10)
    # Neither the session nor any file is locked meanwhile.
    await asyncio.wait_for(storage.append(ALICE, turns("rain")), 5)
    go_on.set()
    await committing
    assert await sessions(storage) == {("alice", ALICE.agent, "s-1")}
