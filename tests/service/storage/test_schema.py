"""Preparing a database: by several replicas at once, and refused where it is not ours."""

import asyncio

import asyncpg
import pytest
from alembic.config import Config
from alembic.script import ScriptDirectory

from kaos_dev.embedded_postgres import EmbeddedPostgres
from kaos_memory.storage.postgres import schema
from kaos_memory.storage.postgres.database import Role
from kaos_memory.storage.postgres.storage import PostgresStorage
from kaos_memory.storage.protocol import StorageMisconfigured, StorageUnavailable, WorkKind
from kaos_memory.tiers.reach import Owners

from ..conftest import OWNER, StorageFactory
from .driving import (
    ALICE,
    LEASE,
    fetch,
    new_fact,
    turns,
)


@pytest.fixture
def backend() -> str:
    return "postgres"


def test_the_head_that_skips_alembic_is_alembics_head():
    config = Config()
    folder = schema.Path(schema.__file__).parent / "migrations"
    config.set_main_option("script_location", str(folder))
    assert ScriptDirectory.from_config(config).get_current_head() == schema.HEAD


async def test_replicas_that_start_together_prepare_one_schema(
    make_storage: StorageFactory, empty_dsn: str
):
    replicas = [make_storage(to=empty_dsn) for _ in range(4)]
    await asyncio.gather(*(replica.open() for replica in replicas))
    await replicas[0].append(ALICE, turns("one"))
    for replica in replicas:
        [found] = await replica.conversations(Owners("alice", ALICE.agent, "s-1"), 100)
        assert [turn.content for turn in found.turns] == ["one"]
        await replica.close()


@pytest.mark.parametrize(
    ("change", "remedy"),
    [
        ({"store": "tests/another"}, "another storage.external.collection"),
        ({"model": "another"}, "models.embedding.model is 'another'; set it back"),
        ({"dims": 16}, "storage.external.embedding_dims is '16'; set it back"),
    ],
)
async def test_a_schema_of_another_store_is_refused_with_the_remedy(
    make_storage: StorageFactory, change: dict[str, str | int], remedy: str
):
    with pytest.raises(StorageMisconfigured, match=remedy):
        await make_storage(**change).open()


async def test_the_sql_that_an_administrator_must_run_is_printed_and_suffices(
    postgres: EmbeddedPostgres, make_storage: StorageFactory
):
    postgres.execute("CREATE ROLE humble LOGIN PASSWORD 'not-a-secret' NOCREATEROLE")
    postgres.create_database("humble_store", template="template0")
    to = postgres.dsn("humble_store", OWNER).replace(f"//{OWNER}:", "//humble:")
    for _ in range(6):
        try:
            storage = make_storage(to=to)
            await storage.open()
            break
        except StorageMisconfigured as refusal:
            sql = str(refusal).partition("run")[2].partition(": ")[2]
            postgres.execute(sql.replace("<user of the DSN>", "humble"), database="humble_store")
    else:
        pytest.fail("the printed SQL did not suffice")
    assert (await storage.append(ALICE, turns("one"))).scheduled is False
    await storage.close()
    postgres.drop_database("humble_store")


async def test_stores_on_one_server_share_no_role(postgres: EmbeddedPostgres):
    names: set[str] = set()
    for name in ("shared_1", "shared_2"):
        postgres.create_database(name, template="empty_store", owner=OWNER)
        prepared = await schema.prepare(
            postgres.dsn(name, OWNER), "kaos_memory", schema.StoreIdentity(name, "m", 4)
        )
        names |= {prepared.request_role, prepared.worker_role}
        postgres.drop_database(name)
    assert len(names) == 4


async def test_a_role_that_bypasses_row_level_security_is_refused(
    make_storage: StorageFactory, postgres: EmbeddedPostgres, empty_dsn: str
):
    prepared = await schema.prepare(
        empty_dsn, "kaos_memory", schema.StoreIdentity("tests/store", "embedder", 8)
    )
    postgres.execute(f'ALTER ROLE "{prepared.request_role}" BYPASSRLS')
    with pytest.raises(StorageMisconfigured, match="NOBYPASSRLS"):
        await make_storage(to=empty_dsn).open()


async def test_an_unreachable_database_is_unavailable(make_storage: StorageFactory):
    with pytest.raises(StorageUnavailable):
        await make_storage(to="postgresql://kaos:x@127.0.0.1:1/kaos").open()


@pytest.mark.parametrize(
    "to",
    ["postgresql://kaos:p#ss@db/kaos", "postgresql://kaos:p/ss@db/kaos", "postgresql://k:x@db:y/z"],
)
async def test_a_dsn_that_cannot_be_understood_is_refused_without_quoting_it(
    make_storage: StorageFactory, to: str
):
    with pytest.raises((StorageMisconfigured, StorageUnavailable)) as caught:
        await make_storage(to=to).open()
    assert "ss@" not in str(caught.value)
    assert caught.value.__cause__ is None or isinstance(caught.value, StorageUnavailable)


async def test_the_largest_vectors_fit(make_storage: StorageFactory, empty_dsn: str):
    storage = make_storage(to=empty_dsn, dims=4_000)
    await storage.open()
    await storage.append(ALICE, turns(*"123456"))
    while (lease := await storage.claim(LEASE)) is not None and lease.kind is not WorkKind.EXTRACT:
        pass
    assert lease is not None
    batch = await storage.load(lease)
    assert batch is not None
    vector = [0.001 * (n % 97) for n in range(4_000)]
    await storage.commit_extraction(batch, [new_fact("long " * 300, vector)])
    [fact] = await storage.search(Owners("alice"), "", vector, 1, None)
    assert fact.score == pytest.approx(1.0, abs=1e-3)
    await storage.close()


async def test_every_connection_can_die_and_the_next_statement_works(
    storage: PostgresStorage, postgres: EmbeddedPostgres, dsn: str
):
    await storage.append(ALICE, turns("one"))
    database = dsn.rpartition("/")[2]
    postgres.execute(
        f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{database}'"
    )
    try:
        await storage.append(ALICE, turns("two"))
    except StorageUnavailable:
        await storage.append(ALICE, turns("two"))
    [found] = await storage.conversations(Owners("alice", ALICE.agent, "s-1"), 100)
    assert [turn.content for turn in found.turns] == ["one", "two"]


async def test_a_schema_that_was_dropped_is_prepared_anew_without_a_restart(
    storage: PostgresStorage, admin_dsn: str
):
    await storage.append(ALICE, turns("one"))
    await fetch(admin_dsn, "DROP SCHEMA kaos_memory CASCADE")
    with pytest.raises(StorageUnavailable):
        await storage.append(ALICE, turns("two"))
    await storage.ping()
    assert (await storage.append(ALICE, turns("three"))).scheduled is False


async def test_a_database_that_was_lost_and_made_anew_is_prepared_when_it_is_back(
    make_storage: StorageFactory, postgres: EmbeddedPostgres
):
    postgres.create_database("phoenix", template="empty_store", owner=OWNER)
    storage = make_storage(to=postgres.dsn("phoenix", OWNER))
    await storage.open()
    postgres.drop_database("phoenix")
    for _ in range(3):
        with pytest.raises(StorageUnavailable):
            await storage.ping()
    postgres.create_database("phoenix", template="template0", owner=OWNER)  # without pgvector
    for _ in range(2):
        with pytest.raises((StorageUnavailable, StorageMisconfigured)):
            await storage.ping()
    postgres.execute("CREATE EXTENSION vector", database="phoenix")
    await asyncio.gather(*(storage.ping() for _ in range(4)), return_exceptions=True)
    await storage.ping()
    assert (await storage.append(ALICE, turns("again"))).scheduled is False
    await storage.close()
    postgres.drop_database("phoenix")


@pytest.mark.parametrize("setting", ["lock_timeout", "statement_timeout"])
async def test_a_statement_that_the_server_times_out_is_unavailable(
    make_storage: StorageFactory, storage: PostgresStorage, dsn: str, admin_dsn: str, setting: str
):
    await storage.append(ALICE, turns("one"))
    database = dsn.rpartition("/")[2]
    await fetch(admin_dsn, f"ALTER DATABASE {database} SET {setting} = '200ms'")
    hasty = make_storage()
    await hasty.open()
    async with storage._db.change("alice", ALICE.agent, Role.REQUEST) as connection:
        await connection.execute("SELECT 1 FROM sessions FOR UPDATE")
        with pytest.raises(StorageUnavailable):
            await hasty.append(ALICE, turns("two"))
    assert (await hasty.append(ALICE, turns("three"))).scheduled is False
    await hasty.close()


async def test_a_cancelled_request_leaves_neither_transaction_nor_connection_behind(
    storage: PostgresStorage, admin_dsn: str
):
    async with storage._db.change("alice", ALICE.agent, Role.REQUEST) as connection:
        await connection.execute(
            "INSERT INTO sessions (principal, agent, session, last_position, window_tokens, "
            "window_turns, last_turn_at) VALUES ('alice', $1, 's-1', 1, 0, 0, now())",
            ALICE.agent,
        )
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await storage.append(ALICE, turns("waits for the session's row"))
    await storage.append(ALICE, turns("next"))
    open_ones = "SELECT 1 FROM pg_stat_activity WHERE state LIKE 'idle in transaction%'"
    assert await fetch(admin_dsn, open_ones) == []


async def test_pgvector_in_a_schema_of_its_own_is_opened_to_the_roles(
    make_storage: StorageFactory, postgres: EmbeddedPostgres
):
    postgres.create_database("apart", template="template0", owner=OWNER)
    postgres.execute(
        "CREATE SCHEMA extensions; CREATE EXTENSION vector SCHEMA extensions", database="apart"
    )
    postgres.execute(
        f"GRANT USAGE ON SCHEMA extensions TO {OWNER} WITH GRANT OPTION", database="apart"
    )
    storage = make_storage(to=postgres.dsn("apart", OWNER))
    await storage.open()
    assert await storage.search(Owners("alice"), "", [1.0] * 8, 5, None) == []
    await storage.close()
    postgres.execute(f"REVOKE USAGE ON SCHEMA extensions FROM {OWNER} CASCADE", database="apart")
    with pytest.raises(StorageMisconfigured, match="GRANT USAGE ON SCHEMA"):
        await make_storage(to=postgres.dsn("apart", OWNER)).open()
    postgres.drop_database("apart")


async def test_a_database_that_cannot_hold_all_text_is_refused(
    make_storage: StorageFactory, postgres: EmbeddedPostgres
):
    postgres.execute(
        f"CREATE DATABASE latin TEMPLATE template0 ENCODING LATIN1 LOCALE 'C' OWNER {OWNER}"
    )
    with pytest.raises(StorageMisconfigured, match="ENCODING 'UTF8'"):
        await make_storage(to=postgres.dsn("latin", OWNER)).open()
    postgres.drop_database("latin")


async def test_a_statement_that_fails_poisons_nothing(storage: PostgresStorage):
    for _ in range(20):
        with pytest.raises(asyncpg.PostgresError):
            await storage.append(ALICE, turns("NUL \x00"))
    await storage.append(ALICE, turns("fine"))


async def test_erased_names_are_hashed_with_a_key_of_the_stores_own(
    postgres: EmbeddedPostgres, storage: PostgresStorage
):
    postgres.create_database("keyed", template="empty_store", owner=OWNER)
    identity = schema.StoreIdentity("another", "m", 4)
    other = await schema.prepare(postgres.dsn("keyed", OWNER), "kaos_memory", identity)
    mine = storage._db.schema.erasure_key.subject("principal", "alice")
    assert mine != other.erasure_key.subject("principal", "alice")
    assert mine == storage._db.schema.erasure_key.subject("principal", "alice")
    assert mine != storage._db.schema.erasure_key.subject("agent", "alice")
    postgres.drop_database("keyed")
