"""Connections and transactions. Each transaction takes on a role and says whose rows it may see."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import Enum
from typing import Any

import asyncpg
from asyncpg.pool import PoolConnectionProxy

from kaos_memory.storage.postgres.schema import Schema
from kaos_memory.storage.protocol import StorageUnavailable
from kaos_memory.tiers.reach import Owners

Connection = PoolConnectionProxy

UNAVAILABLE = (
    OSError,
    TimeoutError,
    asyncpg.InterfaceError,
    asyncpg.PostgresConnectionError,
    asyncpg.CannotConnectNowError,
    asyncpg.TooManyConnectionsError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.InvalidAuthorizationSpecificationError,
    asyncpg.InvalidCatalogNameError,
    asyncpg.ReadOnlySQLTransactionError,
)

_ACQUIRE_SECONDS = 5.0
_STATEMENT_SECONDS = 30.0

# One statement per transaction sets everything, all of it local to the transaction: it works
# through a pooler, and nothing is left behind for the next user of the connection.
_ENTER = """
    SELECT set_config('search_path', $1, true), set_config('role', $2, true),
           set_config('kaos.principal', $3, true), set_config('kaos.agent', $4, true)
"""
_ENTER_SHARED = f"""{_ENTER},
    pg_advisory_xact_lock_shared($5), pg_advisory_xact_lock_shared($6),
    pg_advisory_xact_lock_shared($7)
"""
_ENTER_EXCLUSIVE_BELOW_STORE = f"""{_ENTER},
    pg_advisory_xact_lock_shared($5), pg_advisory_xact_lock($6)
"""
_ENTER_EXCLUSIVE_STORE = f"{_ENTER}, pg_advisory_xact_lock($5)"


class Role(Enum):
    """As whom statements run."""

    REQUEST = "request"
    WORKER = "worker"


@dataclass(frozen=True)
class Subject:
    """What an erasure locks and remembers: a store, an agent or a principal."""

    kind: str
    name: str


STORE = Subject("store", "")


class Database:
    """A pool of connections to one prepared schema."""

    def __init__(self, pool: asyncpg.Pool, schema: Schema) -> None:
        self._pool = pool
        self.schema = schema

    @classmethod
    async def connect(cls, dsn: str, schema: Schema, most: int) -> "Database":
        """Open a pool of at most `most` connections; they are made when first needed."""
        pool = await asyncpg.create_pool(
            dsn,
            min_size=1,
            max_size=most,
            statement_cache_size=0,
            timeout=_ACQUIRE_SECONDS,
            command_timeout=_STATEMENT_SECONDS,
            reset=_nothing_to_reset,
        )
        return cls(pool, schema)

    async def close(self) -> None:
        """Close all connections; statements that run get a moment to end."""
        try:
            async with asyncio.timeout(5):
                await self._pool.close()
        except TimeoutError:
            self._pool.terminate()

    @asynccontextmanager
    async def read(self, owners: Owners, role: Role = Role.REQUEST) -> AsyncGenerator[Connection]:
        """A read-only transaction that sees the rows of these owners."""
        async with self._transaction(_ENTER, self._context(owners, role), readonly=True) as found:
            yield found

    @asynccontextmanager
    async def anyone(self, role: Role) -> AsyncGenerator[Connection]:
        """A transaction without an owner: for due work, and for the store's own records."""
        context = (self.schema.search_path, self._role(role), "", "")
        async with self._transaction(_ENTER, context) as found:
            yield found

    @asynccontextmanager
    async def change(self, principal: str, agent: str, role: Role) -> AsyncGenerator[Connection]:
        """A transaction that adds to one owner's memory. No erasure of it runs meanwhile."""
        context = self._context(Owners(principal, agent), role)
        locks = tuple(
            self.schema.lock_key(subject.kind, subject.name)
            for subject in subjects(principal, agent)
        )
        async with self._transaction(_ENTER_SHARED, (*context, *locks)) as found:
            yield found

    @asynccontextmanager
    async def erasure(self, owners: Owners, subject: Subject) -> AsyncGenerator[Connection]:
        """A transaction that erases: it runs alone among all that add to these owners' memory."""
        context = self._context(owners, Role.REQUEST)
        key = self.schema.lock_key(subject.kind, subject.name)
        if subject == STORE:
            enter, locks = _ENTER_EXCLUSIVE_STORE, (key,)
        else:
            store = self.schema.lock_key(STORE.kind, STORE.name)
            enter, locks = _ENTER_EXCLUSIVE_BELOW_STORE, (store, key)
        async with self._transaction(enter, (*context, *locks)) as found:
            yield found

    @asynccontextmanager
    async def _transaction(
        self, enter: str, arguments: Sequence[Any], *, readonly: bool = False
    ) -> AsyncGenerator[Connection]:
        try:
            async with (
                self._pool.acquire(timeout=_ACQUIRE_SECONDS) as connection,
                connection.transaction(readonly=readonly),
            ):
                await connection.fetchrow(enter, *arguments)
                yield connection
        except UNAVAILABLE as error:
            raise StorageUnavailable(type(error).__name__) from error

    def _context(self, owners: Owners, role: Role) -> tuple[str, str, str, str]:
        return (
            self.schema.search_path,
            self._role(role),
            _bound(owners.principal),
            _bound(owners.agent),
        )

    def _role(self, role: Role) -> str:
        return self.schema.request_role if role is Role.REQUEST else self.schema.worker_role


class OnDatabase:
    """Part of a storage: has the database as soon as it is open."""

    _database: Database | None = None

    @property
    def _db(self) -> Database:
        if self._database is None:
            raise StorageUnavailable("the database has not been reached yet")
        return self._database


def subjects(principal: str, agent: str) -> tuple[Subject, Subject, Subject]:
    """All that an erasure of this owner's memory could be about, in the order of locking."""
    return STORE, Subject("agent", agent), Subject("principal", principal)


def erased_subject(owners: Owners) -> Subject:
    """The narrowest thing that covers all of these owners' memory."""
    if owners.principal is not None:
        return Subject("principal", owners.principal)
    if owners.agent is not None and owners.session is None:
        return Subject("agent", owners.agent)
    return STORE


def where(owners: Owners, alias: str, first: int = 1) -> tuple[str, list[str]]:
    """The condition that binds owners explicitly, and its arguments from `$first` on.

    Row-level security alone would prune neither partitions nor index ranges.
    """
    named = {
        "principal": owners.principal,
        "agent": owners.agent,
        "session": owners.session,
    }
    given = [(column, value) for column, value in named.items() if value is not None]
    conditions = [f"{alias}.{column} = ${first + at}" for at, (column, _) in enumerate(given)]
    return " AND ".join(conditions) or "true", [value for _, value in given]


def _bound(name: str | None) -> str:
    return "*" if name is None else f"={name}"


async def _nothing_to_reset(_connection: asyncpg.Connection) -> None:
    """All settings are local to their transactions, so a used connection is as good as new."""
