"""Turns go in, are compacted, folded and extracted; each is always in exactly one place."""

import pytest

from kaos_memory.storage.protocol import Storage
from kaos_memory.tiers.memory import NO_PRINCIPAL, Owner
from kaos_memory.tiers.reach import Owners

from ..conftest import StorageFactory, Where
from .driving import ALICE, BOB, LEASE, account, commit, fetch, turns, work_off

OF_ALICE = Owners("alice", ALICE.agent, "s-1")


async def window(storage: Storage, owners: Owners, budget: int = 1_000) -> list[str]:
    return [
        turn.content
        for conversation in await storage.conversations(owners, budget)
        for turn in conversation.turns
    ]


async def test_turns_come_back_in_the_order_they_were_written(storage: Storage):
    assert (await storage.append(ALICE, turns("one", "two"))).scheduled is False
    assert (await storage.append(ALICE, turns("three"))).scheduled is False
    assert await window(storage, OF_ALICE) == ["one", "two", "three"]


async def test_a_budget_keeps_the_newest_turns_and_always_the_last(storage: Storage):
    await storage.append(ALICE, turns("one", "two", "three"))
    assert await window(storage, OF_ALICE, budget=40) == ["two", "three"]
    assert await window(storage, OF_ALICE, budget=1) == ["three"]


async def test_the_same_session_id_of_another_user_is_another_conversation(
    storage: Storage,
):
    await storage.append(ALICE, turns("hers"))
    await storage.append(BOB, turns("his"))
    assert await window(storage, OF_ALICE) == ["hers"]
    assert await window(storage, Owners("bob", BOB.agent, "s-1")) == ["his"]
    assert await window(storage, Owners("bob", "kaos://agent/ns/other", "s-1")) == []


async def test_a_person_sees_the_conversations_of_all_agents_in_a_session(
    storage: Storage,
):
    await storage.append(ALICE, turns("to the helper"))
    await storage.append(Owner("alice", "kaos://agent/ns/other", "s-1"), turns("to the other"))
    found = await storage.conversations(Owners("alice", None, "s-1"), 1_000)
    assert {conversation.agent for conversation in found} == {
        ALICE.agent,
        "kaos://agent/ns/other",
    }


async def test_an_agent_without_a_user_has_a_memory_of_its_own(storage: Storage):
    alone = Owner(NO_PRINCIPAL, ALICE.agent, "s-1")
    await storage.append(alone, turns("alone"))
    await storage.append(ALICE, turns("hers"))
    assert await window(storage, Owners(NO_PRINCIPAL, ALICE.agent, "s-1")) == ["alone"]


async def test_overflow_leaves_the_window_and_waits_for_its_digest(storage: Storage, where: Where):
    assert (await storage.append(ALICE, turns("1", "2", "3", "4", "5", "6"))).scheduled is True
    found = await account(where, ALICE)
    assert (found.pending, found.window) == ([1, 2, 3, 4], [5, 6])
    assert await window(storage, OF_ALICE) == ["1", "2", "3", "4", "5", "6"]
    found.check()


async def test_folding_replaces_pending_turns_by_the_next_digest(storage: Storage, where: Where):
    await storage.append(ALICE, turns("1", "2", "3", "4", "5", "6"))
    assert await work_off(storage) == 2
    [conversation] = await storage.conversations(OF_ALICE, 1_000)
    assert conversation.digest == "1 2 3 4"
    assert [turn.content for turn in conversation.turns] == ["5", "6"]
    found = await account(where, ALICE)
    assert found.rows == [5, 6]
    found.check()
    rows = await fetch(where, "SELECT text, principal, agent, session FROM facts")
    assert {tuple(row) for row in rows} == {
        (f"alice said {n}", "alice", ALICE.agent, "s-1") for n in "1234"
    }


async def test_only_the_retained_digest_versions_are_kept(
    make_storage: StorageFactory, where: Where
):
    storage = make_storage(digest_retention=2)
    await storage.open()
    for round_ in range(4):
        await storage.append(ALICE, turns(*(f"{round_}.{n}" for n in range(6))))
        await work_off(storage)
    rows = await fetch(
        where, "SELECT version, first_position, last_position FROM digests ORDER BY version"
    )
    assert [tuple(row) for row in rows] == [(3, 11, 16), (4, 17, 22)]
    await storage.close()


@pytest.mark.parametrize("extract", [True, False])
async def test_without_the_medium_tier_overflow_leaves_the_conversation_at_once(
    make_storage: StorageFactory, where: Where, extract: bool
):
    storage = make_storage(fold=False, extract=extract)
    await storage.open()
    assert (await storage.append(ALICE, turns("1", "2", "3", "4", "5", "6"))).scheduled is extract
    assert await window(storage, OF_ALICE) == ["5", "6"]
    (await account(where, ALICE)).check()
    assert await work_off(storage) == int(extract)
    found = await account(where, ALICE)
    found.check()
    assert found.rows == [5, 6]
    await storage.close()


async def test_turns_that_waited_when_a_tier_was_switched_off_wait_no_longer(
    storage: Storage, make_storage: StorageFactory, where: Where
):
    await storage.append(ALICE, turns("1", "2", "3", "4", "5", "6"))
    await storage.close()
    off = make_storage(fold=False, extract=False)
    await off.open()
    await work_off(off)
    found = await account(where, ALICE)
    found.check()
    assert found.rows == [5, 6]
    assert await fetch(where, "SELECT 1 FROM work") == []
    await off.close()


async def test_the_hard_event_cap_compacts_many_small_turns(
    make_storage: StorageFactory, where: Where
):
    storage = make_storage(hard_event_cap=10)
    await storage.open()
    await storage.append(ALICE, turns(*"abcdefghijk", tokens=1))
    assert (await account(where, ALICE)).window == [7, 8, 9, 10, 11]
    await storage.close()


async def test_turns_stored_without_inference_are_a_batch_of_their_own(storage: Storage):
    await storage.append(ALICE, turns("raw", infer=False))
    await storage.append(ALICE, turns("1", "2", "3", "4", "5"))
    seen: list[list[bool]] = []
    while (lease := await storage.claim(LEASE)) is not None:
        batch = await storage.load(lease)
        if batch is not None:
            if batch.lease.kind == "extract":
                seen.append([turn.infer for turn in batch.turns])
            await commit(storage, batch)
    assert seen == [[False], [True, True, True]]
