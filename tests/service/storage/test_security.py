"""The second line of defence: what the roles of a transaction can see and do."""

import asyncpg
import pytest

from kaos_memory.storage.postgres.database import Role
from kaos_memory.storage.postgres.storage import PostgresStorage
from kaos_memory.storage.protocol import StorageUnavailable
from kaos_memory.tiers.memory import NO_PRINCIPAL, Owner
from kaos_memory.tiers.reach import Owners

from .driving import ALICE, BOB, fetch, turns, work_off

TENANT_TABLES = ("sessions", "turns", "digests", "facts", "work")


@pytest.fixture
def backend() -> str:
    return "postgres"


@pytest.fixture
async def filled(storage: PostgresStorage) -> PostgresStorage:
    """Alice, Bob and an agent alone, each with rows in every table."""
    owners = (ALICE, BOB, Owner(NO_PRINCIPAL, "kaos://agent/ns/other", "s-1"))
    for owner in owners:
        await storage.append(owner, turns(*"123456"))
    await work_off(storage)
    for owner in owners:
        await storage.append(owner, turns(*"123456"))
    return storage


async def owners_seen(storage: PostgresStorage, owners: Owners, table: str) -> set[str]:
    async with storage._db.read(owners) as connection:
        return {row[0] for row in await connection.fetch(f"SELECT principal FROM {table}")}


@pytest.mark.parametrize("table", TENANT_TABLES)
async def test_a_query_that_forgets_its_owner_still_sees_only_the_owners_rows(
    filled: PostgresStorage, table: str
):
    assert await owners_seen(filled, Owners("alice"), table) == {"alice"}
    assert await owners_seen(filled, Owners("alice", ALICE.agent), table) == {"alice"}
    assert await owners_seen(filled, Owners("alice", "kaos://agent/ns/x"), table) == set()
    assert await owners_seen(filled, Owners(None, ALICE.agent), table) == {"alice", "bob"}
    assert await owners_seen(filled, Owners(NO_PRINCIPAL), table) == {NO_PRINCIPAL}
    assert await owners_seen(filled, Owners(), table) == {"alice", "bob", NO_PRINCIPAL}


@pytest.mark.parametrize("table", TENANT_TABLES)
@pytest.mark.parametrize("left", ["never set", "reverted to empty"])
async def test_a_transaction_that_forgets_to_say_whose_rows_sees_none(
    filled: PostgresStorage, table: str, left: str
):
    async with filled._db._pool.acquire() as connection:
        if left == "reverted to empty":
            async with connection.transaction():
                await connection.execute(
                    "SELECT set_config('kaos.principal', '=alice', true), "
                    "set_config('kaos.agent', '*', true)"
                )
        async with connection.transaction():
            await connection.execute(f'SET LOCAL ROLE "{filled._db.schema.request_role}"')
            rows = await connection.fetch(f"SELECT 1 FROM kaos_memory.{table}")
    assert rows == []


@pytest.mark.parametrize("table", TENANT_TABLES)
async def test_not_even_the_tables_owner_is_above_row_level_security(
    filled: PostgresStorage, table: str
):
    async with filled._db._pool.acquire() as connection:
        assert await connection.fetch(f"SELECT 1 FROM kaos_memory.{table}") == []


async def test_every_table_with_an_owner_column_is_secured(admin_dsn: str):
    rows = await fetch(
        admin_dsn,
        """
        SELECT c.relname, c.relrowsecurity AND c.relforcerowsecurity AS secured
        FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
        WHERE n.nspname = 'kaos_memory' AND c.relkind IN ('r', 'p') AND EXISTS (
            SELECT FROM pg_attribute a WHERE a.attrelid = c.oid
            AND a.attname IN ('principal', 'agent') AND a.atttypid = 'text'::regtype)
        """,
    )
    assert {row["relname"] for row in rows} >= set(TENANT_TABLES) | {"facts_00", "facts_31"}
    assert [row["relname"] for row in rows if not row["secured"]] == []


@pytest.mark.parametrize(
    ("role", "statement"),
    [
        (Role.REQUEST, "INSERT INTO facts (principal) VALUES ('alice')"),
        (Role.REQUEST, "UPDATE turns SET content = 'other words'"),
        (Role.REQUEST, "DELETE FROM erasures"),
        (Role.REQUEST, "SELECT 1 FROM facts_00"),
        (Role.REQUEST, "SELECT 1 FROM meta"),
        (Role.WORKER, "DELETE FROM epochs"),
        (Role.WORKER, "INSERT INTO idempotency (key, body) VALUES ('', '')"),
        (Role.WORKER, "DELETE FROM sessions"),
        (Role.WORKER, "INSERT INTO turns (principal) VALUES ('alice')"),
        (Role.WORKER, "UPDATE erasures SET residue = 0"),
        (Role.REQUEST, "DELETE FROM idempotency"),
        (Role.REQUEST, "SELECT 1 FROM token_usage"),
        (Role.WORKER, "UPDATE epochs SET epoch = 0"),
    ],
)
async def test_a_role_can_do_only_what_its_work_needs(
    storage: PostgresStorage, role: Role, statement: str
):
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        async with storage._db.change("alice", ALICE.agent, role) as connection:
            await connection.execute(statement)


async def test_a_row_cannot_be_written_for_another_owner(storage: PostgresStorage):
    await storage.append(BOB, turns("his"))
    with pytest.raises(asyncpg.InsufficientPrivilegeError, match="row-level security"):
        async with storage._db.change("alice", ALICE.agent, Role.REQUEST) as connection:
            await connection.execute(
                "INSERT INTO turns (session_ref, position, principal, agent, role, content, "
                "tokens, infer) VALUES (1, 9, 'bob', $1, 'user', 'forged', 1, true)",
                BOB.agent,
            )


async def test_a_worker_sees_due_work_of_all_but_reads_as_one_owner(filled: PostgresStorage):
    async with filled._db.anyone(Role.WORKER) as connection:
        assert len(await connection.fetch("SELECT DISTINCT principal FROM work")) == 3
        assert await connection.fetch("SELECT 1 FROM turns") == []
    async with filled._db.change("alice", ALICE.agent, Role.WORKER) as connection:
        rows = await connection.fetch("SELECT DISTINCT principal FROM turns")
    assert [row[0] for row in rows] == ["alice"]


async def test_a_read_cannot_write(storage: PostgresStorage):
    with pytest.raises(StorageUnavailable, match="ReadOnlySQLTransactionError"):
        async with storage._db.read(Owners("alice")) as connection:
            await connection.execute("DELETE FROM sessions")


async def test_the_login_takes_its_roles_on_but_does_not_inherit_them(
    storage: PostgresStorage, admin_dsn: str
):
    rows = await fetch(
        admin_dsn,
        "SELECT m.inherit_option FROM pg_auth_members m JOIN pg_roles r ON r.oid = m.roleid "
        "WHERE r.rolname = ANY($1) AND m.set_option",
        [storage._db.schema.request_role, storage._db.schema.worker_role],
    )
    assert [row[0] for row in rows] == [False, False]


async def test_a_login_that_inherits_the_workers_role_sees_no_work(
    filled: PostgresStorage, admin_dsn: str
):
    worker = filled._db.schema.worker_role
    await fetch(admin_dsn, f'GRANT "{worker}" TO kaos WITH INHERIT TRUE')
    async with filled._db._pool.acquire() as connection:
        assert await connection.fetch("SELECT 1 FROM kaos_memory.work") == []
