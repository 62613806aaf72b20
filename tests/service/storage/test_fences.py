"""What keeps an erasure in PostgreSQL apart from what goes on beside it: locks and a re-scan."""

import asyncio

import pytest

from kaos_memory.contract import ScopeLevel
from kaos_memory.storage.postgres.database import Connection, Role
from kaos_memory.storage.postgres.erasures import Covered, Erasures
from kaos_memory.storage.postgres.storage import PostgresStorage
from kaos_memory.storage.protocol import WorkKind
from kaos_memory.tiers.reach import Owners, Reach

from ..conftest import StorageFactory
from .driving import ALICE, LEASE, fetch, turns, work_off

OVERFLOW = ("1", "2", "3", "4", "5", "6")
HERS = Reach(ScopeLevel.USER, Owners("alice"), None)


@pytest.fixture
def backend() -> str:
    return "postgres"


async def test_an_erasure_sees_what_was_committed_while_it_waited_whatever_the_server_defaults_to(
    storage: PostgresStorage, make_storage: StorageFactory, admin_dsn: str, dsn: str
):
    database = dsn.rpartition("/")[2]
    await fetch(
        admin_dsn,
        f"ALTER DATABASE {database} SET default_transaction_isolation = 'repeatable read'",
    )
    strict = make_storage()
    assert isinstance(strict, PostgresStorage)
    await strict.open()
    async with strict._db.change("alice", ALICE.agent, Role.REQUEST) as connection:
        erasing = asyncio.create_task(strict.erase(HERS, dry_run=False))
        await _waits_for_a_lock(storage)
        await connection.execute(
            "INSERT INTO sessions (principal, agent, session, last_position, window_tokens, "
            "window_turns, last_turn_at) VALUES ('alice', $1, 'late', 1, 0, 0, now())",
            ALICE.agent,
        )
    receipt = await erasing
    assert (receipt.sessions, receipt.residue) == (1, 0)
    assert await fetch(admin_dsn, "SELECT 1 FROM sessions") == []
    await strict.close()


@pytest.mark.parametrize(
    "covered",
    [
        Reach(ScopeLevel.SESSION, Owners("alice", ALICE.agent, "s-1"), None),
        Reach(ScopeLevel.SESSION, Owners(None, None, "s-1"), None),
        Reach(ScopeLevel.AGENT, Owners("alice", ALICE.agent), None),
        Reach(ScopeLevel.AGENT, Owners(None, ALICE.agent), None),
        Reach(ScopeLevel.USER, Owners("alice"), None),
        Reach(ScopeLevel.STORE, Owners(), None),
    ],
    ids=lambda covered: f"{covered.level}-{covered.owners.principal}",
)
async def test_an_erasure_waits_for_the_write_that_is_under_way(
    storage: PostgresStorage, covered: Reach
):
    async with storage._db.change(ALICE.principal, ALICE.agent, Role.REQUEST):
        erasing = asyncio.create_task(storage.erase(covered, dry_run=False))
        await _waits_for_a_lock(storage)
        assert not erasing.done()
    assert (await erasing).residue == 0


async def test_a_session_that_waited_for_an_erasure_began_after_it(
    storage: PostgresStorage, admin_dsn: str
):
    await storage.append(ALICE, turns("old"))
    async with storage._db.change(ALICE.principal, ALICE.agent, Role.REQUEST):
        erasing = asyncio.create_task(storage.erase(HERS, dry_run=False))
        await _waits_for_a_lock(storage)
        appending = asyncio.create_task(storage.append(ALICE, turns("new")))
        await _waits_for_a_lock(storage, 2)
    receipt = await erasing
    await appending
    [row] = await fetch(
        admin_dsn,
        "SELECT began_at, created_at FROM sessions JOIN turns ON session_ref = sessions.id",
    )
    assert receipt.erased_at is not None
    assert receipt.erased_at < row["began_at"] <= row["created_at"]
    assert (await storage.replay(receipt)).turns == 0


async def _waits_for_a_lock(storage: PostgresStorage, how_many: int = 1) -> None:
    async with asyncio.timeout(10), storage._db._pool.acquire() as connection:
        while not await connection.fetchval(  # noqa: ASYNC110 - the server brings it about
            "SELECT count(*) >= $1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted",
            how_many,
        ):
            await asyncio.sleep(0.01)


async def test_a_claim_does_not_wait_for_work_that_another_is_claiming(
    storage: PostgresStorage,
):
    await storage.append(ALICE, turns(*OVERFLOW))
    async with storage._db.anyone(Role.WORKER) as connection:
        await connection.fetch("SELECT 1 FROM work WHERE kind = 'fold' FOR UPDATE")
        async with asyncio.timeout(5):
            lease = await storage.claim(LEASE)
            assert lease is not None
            assert lease.kind is WorkKind.EXTRACT
            assert await storage.claim(LEASE) is None


@pytest.mark.parametrize("left", ["turns", "facts"])
async def test_rows_that_a_second_scan_still_finds_are_counted(
    storage: PostgresStorage, monkeypatch: pytest.MonkeyPatch, left: str
):
    """Should a deletion ever miss rows, the receipt says so and nothing is called forgotten."""
    really = Erasures._delete

    async def missing(self: Erasures, connection: Connection, rows: Covered) -> dict[str, int]:
        if left == "facts":
            await connection.execute("SET LOCAL kaos.principal TO '=nobody'")
            counts = await really(self, connection, rows)
            await connection.execute("SET LOCAL kaos.principal TO '=alice'")
            return counts
        return dict.fromkeys(("sessions", "turns", "digests", "facts", "work"), 0)

    await storage.append(ALICE, turns(*OVERFLOW))
    await work_off(storage)
    monkeypatch.setattr(Erasures, "_delete", missing)
    receipt = await storage.erase(HERS, dry_run=False)
    assert receipt.residue > 0
