"""Preparing a database for one store: extension, roles, schema, migrations, and whose it is."""

import asyncio
import contextlib
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b, sha256
from pathlib import Path

import asyncpg

from kaos_memory.storage.erasure_key import KEY_BYTES, ErasureKey
from kaos_memory.storage.protocol import StorageMisconfigured

HEAD = "0002"
"""The newest migration. Where the database has it, Alembic is not even imported."""

_MAY_USE = "SELECT has_schema_privilege($1, to_regnamespace($2)::oid, 'USAGE')"

_OLDEST_PGVECTOR = (0, 7)
"""The first with half-precision vectors."""


@dataclass(frozen=True)
class StoreIdentity:
    """What a schema belongs to; it is recorded there and must match for ever."""

    store: str
    embedding_model: str
    embedding_dims: int


@dataclass(frozen=True)
class Schema:
    """A prepared schema: its names, and the key of its hashes."""

    name: str
    request_role: str
    worker_role: str
    search_path: str
    erasure_key: ErasureKey
    pooled: bool
    """Whether a pooler is between this process and the server."""

    def lock_key(self, kind: str, name: str) -> int:
        """The advisory lock of a store, an agent or a principal, as PostgreSQL's bigint."""
        text = f"{self.name}\0{kind}\0{name}".encode()
        return int.from_bytes(blake2b(text, digest_size=8).digest(), "big", signed=True)


async def connect(dsn: str) -> asyncpg.Connection:
    """Connect without a statement cache, so that a pooler in transaction mode can be between."""
    try:
        return await asyncpg.connect(dsn, statement_cache_size=0, timeout=5)
    except ValueError:
        # Its message quotes the DSN.
        raise StorageMisconfigured(
            "storage.external.dsn cannot be understood; write it as "
            "postgresql://user:password@host:port/database, with special characters in the user "
            "and the password percent-encoded"
        ) from None


async def prepare(dsn: str, collection: str, identity: StoreIdentity) -> Schema:
    """Bring the database to what this version needs.

    Raises:
        StorageMisconfigured: what is missing, and the SQL or the setting that mends it.
    """
    connection = await connect(dsn)
    try:
        async with connection.transaction():
            await _serialise(connection, collection)
            await _refuse_other_encodings(connection)
            extension_schema = await _ensure_extension(connection)
            await _ensure_schema(connection, collection)
            meta = await _ensure_meta(connection, collection, identity)
            _refuse_another_store(meta, collection, identity)
        roles = (meta["request_role"], meta["worker_role"])
        async with connection.transaction():
            await _serialise(connection, collection)
            for role in roles:
                await _ensure_role(connection, role)
                for schema in (collection, extension_schema):
                    await _ensure_usage(connection, role, schema)
        search_path = f'"{collection}", "{extension_schema}"'
        if await _version(connection, collection) != HEAD:
            await _migrate(dsn, collection, search_path, identity, roles)
        await _refuse_bypass(connection, roles)
        return Schema(
            name=collection,
            request_role=roles[0],
            worker_role=roles[1],
            search_path=search_path,
            erasure_key=ErasureKey(bytes.fromhex(meta["erasure_key"])),
            pooled=await _is_pooled(connection),
        )
    finally:
        await connection.close(timeout=5)


async def _is_pooled(connection: asyncpg.Connection) -> bool:
    """Whether the process that answers is another than the one that was connected to."""
    answering = await connection.fetchval("SELECT pg_backend_pid()")
    return answering != connection.get_server_pid()


async def _serialise(connection: asyncpg.Connection, collection: str) -> None:
    await connection.execute(
        "SELECT pg_advisory_xact_lock(hashtextextended($1, 0))", f"kaos migrate {collection}"
    )


async def _refuse_other_encodings(connection: asyncpg.Connection) -> None:
    encoding = await connection.fetchval("SHOW server_encoding")
    if encoding != "UTF8":
        raise StorageMisconfigured(
            f"the database's encoding is {encoding}, which cannot hold all that people type; "
            "give the store one that was created with ENCODING 'UTF8'"
        )


async def _ensure_extension(connection: asyncpg.Connection) -> str:
    query = """
        SELECT n.nspname, e.extversion
        FROM pg_extension e JOIN pg_namespace n ON n.oid = e.extnamespace
        WHERE e.extname = 'vector'
    """
    found = await connection.fetchrow(query)
    if found is None:
        try:
            async with connection.transaction():
                await connection.execute("CREATE EXTENSION vector")
        except (
            asyncpg.InsufficientPrivilegeError,
            asyncpg.UndefinedFileError,
            asyncpg.FeatureNotSupportedError,
        ):
            raise StorageMisconfigured(
                "the database has no extension pgvector, and this user may not create it; "
                "as an administrator run in it: CREATE EXTENSION vector;"
            ) from None
        found = await connection.fetchrow(query)
    assert found is not None  # noqa: S101 - just created
    if tuple(int(part) for part in found["extversion"].split(".")[:2]) < _OLDEST_PGVECTOR:
        raise StorageMisconfigured(
            f"pgvector {found['extversion']} is too old; install 0.7 or later, then run: "
            "ALTER EXTENSION vector UPDATE;"
        )
    return found["nspname"]


async def _ensure_schema(connection: asyncpg.Connection, collection: str) -> None:
    if await connection.fetchval("SELECT to_regnamespace($1) IS NOT NULL", f'"{collection}"'):
        return
    try:
        async with connection.transaction():
            await connection.execute(f'CREATE SCHEMA "{collection}"')
    except asyncpg.InsufficientPrivilegeError:
        raise StorageMisconfigured(
            "this database user may not create a schema; as an administrator run: "
            f'CREATE SCHEMA "{collection}" AUTHORIZATION <user of the DSN>;'
        ) from None


async def _ensure_usage(connection: asyncpg.Connection, role: str, schema: str) -> None:
    if await connection.fetchval(_MAY_USE, role, f'"{schema}"'):
        return
    grant = f'GRANT USAGE ON SCHEMA "{schema}" TO "{role}"'
    with contextlib.suppress(asyncpg.InsufficientPrivilegeError):  # or PostgreSQL only warns
        async with connection.transaction():
            await connection.execute(grant)
    if not await connection.fetchval(_MAY_USE, role, f'"{schema}"'):
        raise StorageMisconfigured(
            f"the roles of row-level security may not use schema {schema!r}; as an administrator "
            f"run: {grant};"
        )


async def _ensure_role(connection: asyncpg.Connection, role: str) -> None:
    """A role without login that statements run as; the DSN's user must be able to take it on."""
    usable = "SELECT pg_has_role(current_user, $1, 'SET')"
    exists = await connection.fetchval("SELECT 1 FROM pg_roles WHERE rolname = $1", role)
    try:
        async with connection.transaction():
            if not exists:
                await connection.execute(f'CREATE ROLE "{role}" NOLOGIN')
            if not await connection.fetchval(usable, role):
                # To take on, not to inherit: its policies must not apply to the login itself.
                inherit = (
                    " WITH INHERIT FALSE" if connection.get_server_version().major >= 16 else ""
                )
                await connection.execute(f'GRANT "{role}" TO CURRENT_USER{inherit}')
    except asyncpg.InsufficientPrivilegeError:
        raise StorageMisconfigured(
            "this database user may not create the roles of row-level security; as an "
            f'administrator run: CREATE ROLE "{role}" NOLOGIN; '
            f'GRANT "{role}" TO <user of the DSN>;'
        ) from None


async def _version(connection: asyncpg.Connection, collection: str) -> str | None:
    table = f'"{collection}".alembic_version'
    if not await connection.fetchval("SELECT to_regclass($1) IS NOT NULL", table):
        return None
    return await connection.fetchval(f"SELECT version_num FROM {table}")


async def _migrate(
    dsn: str,
    collection: str,
    search_path: str,
    identity: StoreIdentity,
    roles: tuple[str, str],
) -> None:
    # Imported here: both cost a third of a second, and most starts do not need them.
    from alembic import command  # noqa: PLC0415
    from alembic.config import Config  # noqa: PLC0415
    from sqlalchemy import Connection, text  # noqa: PLC0415
    from sqlalchemy.ext.asyncio import create_async_engine  # noqa: PLC0415
    from sqlalchemy.pool import NullPool  # noqa: PLC0415

    def upgrade(connection: Connection) -> None:
        config = Config()
        config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
        config.attributes.update(
            connection=connection,
            schema=collection,
            dims=identity.embedding_dims,
            request_role=f'"{roles[0]}"',
            worker_role=f'"{roles[1]}"',
        )
        command.upgrade(config, HEAD)

    engine = create_async_engine(
        "postgresql+asyncpg://", async_creator=lambda: connect(dsn), poolclass=NullPool
    )
    try:
        async with engine.begin() as connection:
            await connection.execute(
                text("SELECT pg_advisory_xact_lock(hashtextextended(:key, 0))"),
                {"key": f"kaos migrate {collection}"},
            )
            await connection.execute(
                text("SELECT set_config('search_path', :path, true)"), {"path": search_path}
            )
            await connection.run_sync(upgrade)
    finally:
        await asyncio.shield(engine.dispose())


async def _ensure_meta(
    connection: asyncpg.Connection, collection: str, identity: StoreIdentity
) -> dict[str, str]:
    """The store's record of itself, made when the schema is new.

    Roles belong to the whole server, so their names are drawn: two stores on one server, in
    databases of their own, must not share a role that opens both.
    """
    suffix = secrets.token_hex(4)
    new = {
        "store": identity.store,
        "embedding_model": identity.embedding_model,
        "embedding_dims": str(identity.embedding_dims),
        "erasure_key": secrets.token_hex(KEY_BYTES),
        "request_role": f"{collection}_request_{suffix}",
        "worker_role": f"{collection}_worker_{suffix}",
    }
    table = f'"{collection}".meta'
    await connection.execute(
        f"CREATE TABLE IF NOT EXISTS {table} (key text PRIMARY KEY, value text NOT NULL)"
    )
    await connection.executemany(
        f"INSERT INTO {table} VALUES ($1, $2) ON CONFLICT DO NOTHING", list(new.items())
    )
    rows = await connection.fetch(f"SELECT key, value FROM {table}")
    return {row["key"]: row["value"] for row in rows}


def _refuse_another_store(
    meta: Mapping[str, str], collection: str, identity: StoreIdentity
) -> None:
    if meta["store"] != identity.store:
        raise StorageMisconfigured(
            f"schema {collection!r} belongs to the store {meta['store']!r}, not to "
            f"{identity.store!r}; give this store another storage.external.collection, or set "
            f"store.name to {meta['store']!r} if it is the same store renamed"
        )
    wanted = (
        ("embedding_model", "models.embedding.model", identity.embedding_model),
        ("embedding_dims", "storage.external.embedding_dims", str(identity.embedding_dims)),
    )
    for key, field, value in wanted:
        if meta[key] != value:
            raise StorageMisconfigured(
                f"the facts in schema {collection!r} have {key} {meta[key]!r}, but "
                f"{field} is {value!r}; set it back, or use another collection"
            )


async def _refuse_bypass(connection: asyncpg.Connection, roles: tuple[str, str]) -> None:
    bypassing = await connection.fetch(
        "SELECT rolname FROM pg_roles WHERE rolname = ANY($1) AND (rolsuper OR rolbypassrls)",
        list(roles),
    )
    if bypassing:
        names = ", ".join(row["rolname"] for row in bypassing)
        raise StorageMisconfigured(
            f"row-level security does not hold for the role {names}; as an administrator run: "
            f"ALTER ROLE {names} NOSUPERUSER NOBYPASSRLS;"
        )


def prompt_hash(text: str) -> str:
    """A short digest that says which prompt made a fact."""
    return sha256(text.encode()).hexdigest()[:16]
