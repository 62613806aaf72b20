"""Receipts: what they say, who may see them, and what they do to a database that was restored."""

import json
import shutil
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID, uuid4

import pytest

from kaos_dev.embedded_postgres import EmbeddedPostgres
from kaos_memory.contract import Erasure, ErasureLevel, ScopeLevel
from kaos_memory.storage.protocol import Storage, UnusableReceipt
from kaos_memory.tiers.memory import Owner
from kaos_memory.tiers.reach import Owners, Reach

from ..conftest import OWNER, StorageFactory, Where
from .driving import ALICE, BOB, dump, fetch, turns, work_off

OTHER = "kaos://agent/ns/other"
EVERYONE = [Owner(who, agent, "s-1") for who in ("alice", "bob") for agent in (ALICE.agent, OTHER)]
OF_TENANTS = ("sessions", "turns", "digests", "facts", "work")
HERS = Reach(ScopeLevel.USER, Owners("alice"), None)


async def fill(storage: Storage) -> None:
    """Two users with two agents each: window, digest, facts and due work."""
    for owner in EVERYONE:
        await storage.append(owner, turns(*(f"{owner.agent} {n}" for n in range(6))))
    await work_off(storage)
    for owner in EVERYONE:
        await storage.append(owner, turns(*(f"{owner.agent} {n}" for n in range(6, 12))))


async def exported(storage: Storage, after: datetime | None = None) -> list[Erasure]:
    """Receipts as they come back from an export."""
    lines = [each.model_dump_json(exclude_none=True) async for each in storage.receipts(after)]
    return [Erasure.model_validate(json.loads(line)) for line in lines]


async def test_a_receipt_says_what_was_erased_by_whom_and_names_nobody(storage: Storage):
    await fill(storage)
    covered = Reach(ScopeLevel.SESSION, Owners("alice", ALICE.agent, "s-1"), None)
    receipt = await storage.erase(covered, dry_run=False, by=ALICE.agent)
    assert receipt.id is not None
    assert receipt.erased_at is not None
    assert abs(datetime.now(UTC) - receipt.erased_at) < timedelta(minutes=1)
    assert receipt.level is ErasureLevel.SESSION
    assert (receipt.sessions, receipt.turns, receipt.residue) == (1, 8, 0)
    hashes = {receipt.principal_hash, receipt.agent_hash, receipt.session_hash}
    assert len(hashes) == 3
    assert None not in hashes
    assert receipt.erased_by == receipt.agent_hash
    assert receipt.fact_hash is None
    shown = receipt.model_dump_json()
    assert not any(word in shown for word in ("alice", "helper", "s-1"))
    assert await storage.receipt(receipt.id) == receipt
    assert await exported(storage) == [receipt]


async def test_an_agent_sees_receipts_that_are_about_it_or_that_it_asked_for(storage: Storage):
    about = await storage.erase(
        Reach(ScopeLevel.AGENT, Owners("alice", OTHER), None), dry_run=False
    )
    asked = await storage.erase(HERS, dry_run=False, by=OTHER)
    neither = await storage.erase(HERS, dry_run=False, by=ALICE.agent)
    seen = [
        each.id is not None and await storage.receipt(each.id, to=OTHER) is not None
        for each in (about, asked, neither)
    ]
    assert seen == [True, True, False]
    assert await storage.receipt(uuid4()) is None


async def test_receipts_come_oldest_first_and_after_a_time(storage: Storage):
    made = [await storage.erase(HERS, dry_run=False) for _ in range(3)]
    assert await exported(storage) == made
    assert await exported(storage, made[0].erased_at) == made[1:]


async def test_all_pages_of_receipts_are_exported(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
):
    for kind in ("postgres", "local"):
        monkeypatch.setattr(f"kaos_memory.storage.{kind}.receipts._PAGE_SIZE", 2)
    made = [await storage.erase(HERS, dry_run=False) for _ in range(5)]
    assert await exported(storage) == made


async def facts(storage: Storage, owners: Owners) -> dict[str, UUID]:
    found, _ = await storage.list_facts(owners, 100, None)
    return {fact.text: fact.id for fact in found}


async def test_a_fact_is_found_by_its_id_and_owners_only(storage: Storage):
    await fill(storage)
    hers = await facts(storage, Owners("alice", OTHER))
    for text, identity in hers.items():
        found = await storage.fact(Owners("alice"), identity)
        assert found is not None
        fact, source = found
        assert (fact.id, fact.text, fact.agent) == (identity, text, OTHER)
        assert (source.model, source.prompt_hash) == ("writer", "prompt")
        assert source.first_position == source.last_position
        assert await storage.fact(Owners("bob"), identity) is None
        assert await storage.fact(Owners("alice", ALICE.agent), identity) is None


async def test_erasing_a_fact_leaves_every_other_row_as_it_was(storage: Storage, where: Where):
    await fill(storage)
    await storage.append(Owner("alice", OTHER, "s-2"), turns(*(f"{OTHER} {n}" for n in range(6))))
    await work_off(storage)
    before = await dump(where, OF_TENANTS)
    [(text, identity), *_] = (await facts(storage, Owners("alice", OTHER, "s-1"))).items()
    assert await storage.erase_fact(Owners("bob"), identity) is None
    assert await dump(where, OF_TENANTS) == before
    receipt = await storage.erase_fact(Owners("alice", OTHER), identity, by=OTHER)
    assert receipt is not None
    # The same was said in another session: recalls show both as one.
    assert (receipt.level, receipt.facts, receipt.residue) == (ErasureLevel.FACT, 2, 0)
    assert None not in {receipt.principal_hash, receipt.agent_hash, receipt.fact_hash}
    assert text not in await facts(storage, Owners("alice", OTHER))
    after = await dump(where, OF_TENANTS)
    gone = [row for row in before["facts"] if row not in after["facts"]]
    assert len(gone) == 2
    assert all(text in row and "'alice'" in row for row in gone)
    assert {**after, "facts": sorted([*after["facts"], *gone])} == before
    assert await storage.erase_fact(Owners("alice", OTHER), identity) is None


Restore = Callable[[], tuple[Storage, Where]]


@pytest.fixture
def restore(
    backend: str,
    request: pytest.FixtureRequest,
    make_storage: StorageFactory,
    where: Where,
    tmp_path: Path,
) -> Iterator[Restore]:
    """Copy the store as it is, which must be closed; the copy is a backup that was restored."""
    if backend == "local":
        assert isinstance(where, Path)

        def copied() -> tuple[Storage, Where]:
            shutil.copytree(where.parent, tmp_path / "restored")
            restored = tmp_path / "restored"
            return make_storage(to=restored), restored / where.name

        yield copied
        return
    postgres: EmbeddedPostgres = request.getfixturevalue("postgres")
    source = str(where).rpartition("/")[2].partition("?")[0]
    name = f"{source}_restored"

    def cloned() -> tuple[Storage, Where]:
        postgres.create_database(name, template=source, owner=OWNER)
        return make_storage(to=postgres.dsn(name, OWNER)), postgres.dsn(name)

    yield cloned
    postgres.drop_database(name)


@pytest.mark.parametrize(
    ("reach", "erased"),
    [
        (HERS, {"alice"}),
        (Reach(ScopeLevel.AGENT, Owners("alice", ALICE.agent), None), {("alice", ALICE.agent)}),
        (Reach(ScopeLevel.AGENT, Owners(None, OTHER), None), {("alice", OTHER), ("bob", OTHER)}),
        (Reach(ScopeLevel.SESSION, Owners("bob", OTHER, "s-1"), None), {("bob", OTHER)}),
        (Reach(ScopeLevel.STORE, Owners(), None), {"alice", "bob"}),
    ],
)
async def test_a_replay_erases_again_what_a_backup_brought_back(
    storage: Storage,
    restore: Restore,
    where: Where,
    reach: Reach,
    erased: set[object],
):
    await fill(storage)
    await storage.close()
    restored, rows_of = restore()
    await storage.open()
    receipt = await storage.erase(reach, dry_run=False)
    kept = await dump(where, OF_TENANTS)
    [line] = await exported(storage)

    await restored.open()
    assert await dump(rows_of, OF_TENANTS) != kept
    replayed = await restored.replay(line)
    assert replayed == receipt
    assert await dump(rows_of, OF_TENANTS) == kept
    assert await exported(restored) == [receipt]
    for owner in EVERYONE:
        gone = owner.principal in erased or (owner.principal, owner.agent) in erased
        owners = Owners(owner.principal, owner.agent)
        assert (await facts(restored, owners) == {}) is gone

    again = await restored.replay(line)
    assert (again.sessions, again.turns, again.facts, again.residue) == (0, 0, 0, 0)
    assert await dump(rows_of, OF_TENANTS) == kept
    assert await exported(restored) == [receipt]
    await restored.close()


async def test_a_replay_erases_a_fact_again(storage: Storage, restore: Restore, where: Where):
    await fill(storage)
    await storage.close()
    restored, rows_of = restore()
    await storage.open()
    [identity, *_] = (await facts(storage, Owners("alice"))).values()
    receipt = await storage.erase_fact(Owners("alice"), identity)
    assert receipt is not None
    await restored.open()
    assert await restored.replay(receipt) == receipt
    assert await dump(rows_of, OF_TENANTS) == await dump(where, OF_TENANTS)
    await restored.close()


async def test_what_came_after_a_receipt_stays_and_a_session_that_began_before_goes_whole(
    storage: Storage, where: Where
):
    await storage.append(ALICE, turns("before"))
    receipt = await storage.erase(Reach(ScopeLevel.USER, Owners("bob"), None), dry_run=False)
    hers = await storage.erase(
        Reach(ScopeLevel.SESSION, Owners("alice", None, "none"), None), dry_run=False
    )
    receipt = receipt.model_copy(update={"id": uuid4(), "principal_hash": hers.principal_hash})
    await storage.append(ALICE, turns("after", infer=False))
    await storage.append(Owner("alice", ALICE.agent, "new"), turns("new", infer=False))
    await storage.append(BOB, turns("his"))
    await work_off(storage)
    replayed = await storage.replay(receipt)
    assert (replayed.sessions, replayed.turns, replayed.residue) == (1, 2, 0)
    assert replayed.facts >= 1
    left = await fetch(where, "SELECT session FROM sessions ORDER BY principal, session")
    assert [row[0] for row in left] == ["new", "s-1"]
    assert await facts(storage, Owners("alice", None, "s-1")) == {}
    assert len(await facts(storage, Owners("alice", None, "new"))) == 1


async def test_receipts_that_cannot_be_replayed_are_refused_and_change_nothing(
    storage: Storage, where: Where
):
    await fill(storage)
    before = await dump(where)
    plan = await storage.erase(HERS, dry_run=True)
    receipt = Erasure.model_validate(
        plan.model_dump() | {"id": uuid4(), "erased_at": datetime.now(UTC), "key_id": "0" * 16}
    )
    with pytest.raises(UnusableReceipt, match="plan"):
        await storage.replay(plan)
    with pytest.raises(UnusableReceipt, match="another store"):
        await storage.replay(receipt)
    assert await dump(where) == before
    real = await storage.erase(Reach(ScopeLevel.USER, Owners("nobody"), None), dry_run=False)
    with pytest.raises(UnusableReceipt, match="level user"):
        await storage.replay(real.model_copy(update={"principal_hash": None}))


async def test_the_replay_of_a_facts_receipt_leaves_what_was_said_later(
    storage: Storage, restore: Restore
):
    await storage.append(ALICE, turns("tea", infer=False))
    await work_off(storage)
    await storage.close()
    restored, _ = restore()
    await storage.open()
    [identity] = (await facts(storage, Owners("alice"))).values()
    receipt = await storage.erase_fact(Owners("alice"), identity)
    assert receipt is not None
    await restored.open()
    await restored.append(Owner("alice", ALICE.agent, "new"), turns("tea", infer=False))
    await work_off(restored)
    replayed = await restored.replay(receipt)
    assert (replayed.facts, replayed.residue) == (1, 0)
    assert await facts(restored, Owners("alice", None, "s-1")) == {}
    assert len(await facts(restored, Owners("alice", None, "new"))) == 1
    await restored.close()
