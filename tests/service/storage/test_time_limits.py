"""No statement outlives the request, the work or the erasure that it was sent for."""

import asyncio
from contextlib import AbstractAsyncContextManager

import pytest

from kaos_memory.storage.postgres import time_limits
from kaos_memory.storage.postgres.database import STORE, Connection, Database, Role
from kaos_memory.storage.postgres.storage import PostgresStorage
from kaos_memory.storage.protocol import StorageUnavailable
from kaos_memory.tiers.reach import Owners

from .driving import ALICE, fetch

HERS = Owners("alice")
_RUNNING = "SELECT 1 FROM pg_stat_activity WHERE state = 'active' AND query LIKE '%pg_sleep(15)'"


@pytest.fixture
def backend() -> str:
    return "postgres"


def transactions(database: Database) -> dict[str, AbstractAsyncContextManager[Connection]]:
    return {
        "a read": database.read(HERS),
        "a worker's read": database.read(HERS, Role.WORKER),
        "a change": database.change("alice", ALICE.agent, Role.REQUEST),
        "a worker's change": database.change("alice", ALICE.agent, Role.WORKER),
        "the store's records": database.anyone(Role.REQUEST),
        "due work": database.anyone(Role.WORKER),
        "retention": database.everyone(Role.WORKER),
        "an erasure": database.erasure(HERS, STORE),
    }


async def test_each_kind_of_transaction_has_a_limit_and_leaves_none_behind(
    storage: PostgresStorage,
):
    found: dict[str, str] = {}
    for kind, transaction in transactions(storage._db).items():
        async with transaction as connection:
            found[kind] = await connection.fetchval("SHOW statement_timeout")
            assert await connection.fetchval("SHOW client_connection_check_interval") == "1s"
        assert await connection_setting(storage, "statement_timeout") == "0"
    assert found == {
        "a read": "3500ms",
        "a worker's read": "20s",
        "a change": "8500ms",
        "a worker's change": "20s",
        "the store's records": "8500ms",
        "due work": "20s",
        "retention": "10min",
        "an erasure": "10min",
    }


async def connection_setting(storage: PostgresStorage, name: str) -> str:
    return await storage._db._pool.fetchval(f"SHOW {name}")


async def test_what_a_caller_gave_up_stops_on_the_server(storage: PostgresStorage, admin_dsn: str):
    async def gives_up() -> None:
        async with asyncio.timeout(0.3), storage._db.read(HERS) as connection:
            await connection.execute("SELECT pg_sleep(15)")

    with pytest.raises(TimeoutError):
        await gives_up()
    async with asyncio.timeout(3):
        while await fetch(admin_dsn, _RUNNING):  # noqa: ASYNC110 - the server brings it about
            await asyncio.sleep(0.05)


async def test_a_server_that_cannot_look_for_its_client_still_stops_at_the_limit(
    storage: PostgresStorage, monkeypatch: pytest.MonkeyPatch
):
    unknown = "set_config('no_such_setting', '1000', true)"
    monkeypatch.setattr(time_limits, "CHECK_CLIENT", unknown)
    monkeypatch.setattr(time_limits, "READ", 0.2)
    assert not await time_limits.can_check_client(storage._db._pool)
    older = Database(storage._db._pool, storage._db.schema, checks_client=False)
    with pytest.raises(StorageUnavailable, match="QueryCanceledError"):
        async with older.read(HERS) as connection:
            await connection.execute("SELECT pg_sleep(15)")


async def test_waiting_for_an_erasure_has_the_same_limit(
    storage: PostgresStorage, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(time_limits, "CHANGE", 0.2)
    async with storage._db.erasure(HERS, STORE):
        with pytest.raises(StorageUnavailable, match="QueryCanceledError"):
            async with storage._db.change("alice", ALICE.agent, Role.REQUEST):
                raise AssertionError


async def test_a_server_that_hangs_is_not_waited_for(
    storage: PostgresStorage, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(time_limits, "GRACE", -3.3)
    with pytest.raises(StorageUnavailable, match="TimeoutError"):
        async with storage._db.read(HERS) as connection:
            await connection.execute("SELECT pg_sleep(15)")
