"""A write that is sent again is stored once, on both storages."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta

import pytest

from kaos_memory.contract import ScopeLevel
from kaos_memory.settings import Retention
from kaos_memory.storage.postgres.database import Connection
from kaos_memory.storage.postgres.storage import PostgresStorage
from kaos_memory.storage.protocol import (
    Appended,
    IdempotencyConflict,
    IdempotencyKey,
    Storage,
)
from kaos_memory.tiers.memory import NewTurn, Owner
from kaos_memory.tiers.reach import Owners, Reach

from ..conftest import StorageFactory, Where
from .driving import ALICE, BOB, dump, fetch, turns

KEY = IdempotencyKey("key-1", timedelta(hours=24))
RECORDS = ("idempotency",)
WAITING = """
    SELECT 1 FROM pg_stat_activity
    WHERE wait_event_type = 'Lock' AND datname = current_database()
"""


async def stored(storage: Storage, owner: Owner = ALICE) -> list[str]:
    owners = Owners(owner.principal, owner.agent, owner.session)
    found = await storage.conversations(owners, 10_000)
    return [turn.content for conversation in found for turn in conversation.turns]


@pytest.mark.parametrize("contents", [("one",), ("1", "2", "3", "4", "5", "6")])
async def test_the_same_write_again_gets_the_first_answer_and_stores_nothing(
    storage: Storage, contents: Sequence[str]
):
    first = await storage.append(ALICE, turns(*contents), KEY)
    again = await storage.append(ALICE, turns(*contents), KEY)
    assert first == Appended(scheduled=len(contents) > 1)
    assert again == Appended(scheduled=first.scheduled, replayed=True)
    assert await stored(storage) == list(contents)


@pytest.mark.parametrize(
    ("owner", "written"),
    [
        (ALICE, turns("other")),
        (ALICE, turns("one", "one")),
        (ALICE, turns("one", infer=False)),
        (ALICE, [NewTurn("assistant", "one", 20)]),
        (Owner(ALICE.principal, ALICE.agent, "s-2"), turns("one")),
    ],
    ids=["words", "number", "infer", "role", "session"],
)
async def test_the_key_of_another_write_is_refused(
    storage: Storage, owner: Owner, written: Sequence[NewTurn]
):
    await storage.append(ALICE, turns("one"), KEY)
    with pytest.raises(IdempotencyConflict):
        await storage.append(owner, written, KEY)
    assert await stored(storage) == ["one"]
    assert await stored(storage, Owner(ALICE.principal, ALICE.agent, "s-2")) == []


async def test_keys_belong_to_a_principal_and_an_agent(storage: Storage):
    owners = [
        ALICE,
        BOB,
        Owner("alice", "kaos://agent/ns/other", "s-1"),
        Owner("", ALICE.agent, "s-1"),
    ]
    for owner in owners:
        assert not (await storage.append(owner, turns("one"), KEY)).replayed
        assert await stored(storage, owner) == ["one"]


async def test_a_record_over_its_age_is_none(storage: Storage, where: Where):
    await storage.append(ALICE, turns("one"), KEY)
    await fetch(where, "UPDATE idempotency SET stored_at = now() - interval '2 day'")
    assert not (await storage.append(ALICE, turns("two"), KEY)).replayed
    assert (await storage.append(ALICE, turns("two"), KEY)).replayed
    assert await stored(storage) == ["one", "two"]
    assert await storage.retain(Retention(), 10) == {"idempotency_keys": 0}


async def test_a_late_retry_after_an_erasure_brings_nothing_back(storage: Storage, where: Where):
    first = await storage.append(ALICE, turns("one"), KEY)
    records = await dump(where, RECORDS)
    await storage.erase(Reach(ScopeLevel.USER, Owners("alice"), None), dry_run=False)
    assert await dump(where, RECORDS) == records
    again = await storage.append(ALICE, turns("one"), KEY)
    assert (again.scheduled, again.replayed) == (first.scheduled, True)
    assert await stored(storage) == []
    assert await fetch(where, "SELECT 1 FROM sessions") == []


async def test_a_record_names_nobody(storage: Storage, where: Where):
    await storage.append(ALICE, turns("secret"), KEY)
    [record] = (await dump(where, RECORDS))["idempotency"]
    assert not any(word in record for word in ("alice", "helper", "s-1", "secret", KEY.name))


async def test_a_write_without_a_key_leaves_no_record(storage: Storage, where: Where):
    await storage.append(ALICE, turns("one"))
    assert await fetch(where, "SELECT 1 FROM idempotency") == []


async def test_a_failed_write_leaves_no_record(
    storage: Storage, where: Where, monkeypatch: pytest.MonkeyPatch
):
    with monkeypatch.context() as patched:
        patched.setattr(storage, "_compaction", None)
        with pytest.raises(AttributeError):
            await storage.append(ALICE, turns("one"), KEY)
    assert await fetch(where, "SELECT 1 FROM idempotency") == []
    assert not (await storage.append(ALICE, turns("one"), KEY)).replayed
    assert await stored(storage) == ["one"]


async def test_of_many_at_once_one_is_stored(storage: Storage):
    answers = await asyncio.gather(
        *(storage.append(ALICE, turns(*"123456"), KEY) for _ in range(20))
    )
    assert {answer.scheduled for answer in answers} == {True}
    assert sum(not answer.replayed for answer in answers) == 1
    assert await stored(storage) == list("123456")


@pytest.mark.parametrize("backend", ["postgres"])
@pytest.mark.parametrize("commits", [True, False])
async def test_another_replica_waits_for_the_first_to_commit_or_to_roll_back(
    storage: Storage,
    make_storage: StorageFactory,
    admin_dsn: str,
    monkeypatch: pytest.MonkeyPatch,
    commits: bool,
):
    other = make_storage()
    await other.open()
    reached, go_on = asyncio.Event(), asyncio.Event()
    assert isinstance(storage, PostgresStorage)
    append = storage._append

    async def held(connection: Connection, owner: Owner, new: Sequence[NewTurn]) -> bool:
        scheduled = await append(connection, owner, new)
        reached.set()
        await go_on.wait()
        if not commits:
            raise RuntimeError
        return scheduled

    monkeypatch.setattr(storage, "_append", held)
    first = asyncio.create_task(storage.append(ALICE, turns("one"), KEY))
    await reached.wait()
    second = asyncio.create_task(other.append(ALICE, turns("one"), KEY))
    async with asyncio.timeout(10):
        while not await fetch(admin_dsn, WAITING):  # noqa: ASYNC110 - another process waits
            await asyncio.sleep(0.01)
    assert not second.done()
    go_on.set()
    [outcome] = await asyncio.gather(first, return_exceptions=True)
    assert isinstance(outcome, Appended) is commits
    assert (await second).replayed is commits
    assert await stored(other) == ["one"]
    await other.close()
