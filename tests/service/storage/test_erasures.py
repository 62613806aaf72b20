"""Erasure: everything of the one, nothing of the others, and a receipt that names nobody."""

import pytest

from kaos_memory.contract import ScopeLevel
from kaos_memory.storage.protocol import Storage
from kaos_memory.tiers.memory import Owner
from kaos_memory.tiers.reach import Owners, Reach

from ..conftest import Where
from .driving import ALICE, BOB, TABLES, dump, turns, work_off

OTHER_AGENT = Owner("alice", "kaos://agent/ns/other", "s-1")
OTHER_SESSION = Owner("alice", ALICE.agent, "s-2")
EVERYONE = {"alice": ALICE, "bob": BOB, "agent": OTHER_AGENT, "session": OTHER_SESSION}


def reach(level: ScopeLevel, *owners: str | None) -> Reach:
    return Reach(level, Owners(*owners), None)


@pytest.fixture
async def filled(storage: Storage) -> Storage:
    """Four owners, each with window, pending turns, digest, facts and due work."""
    for name, owner in EVERYONE.items():
        await storage.append(owner, turns(*(f"{name}-{n}" for n in range(6))))
    await work_off(storage)
    for name, owner in EVERYONE.items():
        await storage.append(owner, turns(*(f"{name}-{n}" for n in range(6, 12))))
    return storage


def rows_about(rows: dict[str, list[str]], owner: Owner) -> list[str]:
    """Rows of one owner; those of turns and digests carry no session, so words tell."""
    name = next(name for name, each in EVERYONE.items() if each == owner)
    return [
        row
        for table in TABLES
        for row in rows[table]
        if f"{name}-" in row
        or (owner.principal in row and owner.agent in row and owner.session in row)
    ]


@pytest.mark.parametrize(
    ("covered", "erased"),
    [
        (reach(ScopeLevel.SESSION, "alice", ALICE.agent, "s-1"), {"alice"}),
        (reach(ScopeLevel.SESSION, "alice", None, "s-1"), {"alice", "agent"}),
        (reach(ScopeLevel.SESSION, None, None, "s-1"), {"alice", "agent", "bob"}),
        (reach(ScopeLevel.AGENT, "alice", ALICE.agent), {"alice", "session"}),
        (reach(ScopeLevel.AGENT, None, ALICE.agent), {"alice", "session", "bob"}),
        (reach(ScopeLevel.USER, "alice"), {"alice", "agent", "session"}),
        (reach(ScopeLevel.STORE), {"alice", "agent", "session", "bob"}),
    ],
)
async def test_an_erasure_takes_what_its_level_covers_and_leaves_the_rest_as_it_was(
    filled: Storage, where: Where, covered: Reach, erased: set[str]
):
    before = await dump(where)
    plan = await filled.erase(covered, dry_run=True)
    assert await dump(where) == before
    receipt = await filled.erase(covered, dry_run=False)
    after = await dump(where)
    assert receipt.residue == 0
    counts = (receipt.sessions, receipt.turns, receipt.digests, receipt.facts)
    assert counts == (plan.sessions, plan.turns, plan.digests, plan.facts)
    assert counts == (len(erased), 8 * len(erased), len(erased), 4 * len(erased))
    for name, owner in EVERYONE.items():
        kept = rows_about(after, owner)
        assert kept == ([] if name in erased else rows_about(before, owner))
        if name not in erased:
            assert kept


async def test_receipt_and_epoch_name_nobody(filled: Storage, where: Where):
    await filled.erase(reach(ScopeLevel.USER, "alice"), dry_run=False)
    rows = await dump(where)
    assert len(rows["erasures"]) == 1
    assert len(rows["epochs"]) == 1
    assert not [row for table in rows.values() for row in table if "alice" in row]


async def test_erasing_nothing_is_a_receipt_of_nothing(storage: Storage):
    receipt = await storage.erase(reach(ScopeLevel.USER, "nobody"), dry_run=False)
    assert (receipt.sessions, receipt.turns, receipt.facts, receipt.residue) == (0, 0, 0, 0)
    assert receipt.id
