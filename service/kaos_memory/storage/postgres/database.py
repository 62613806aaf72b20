"""Connections and transactions. Each transaction takes on a role and says whose rows it may see."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import Enum

import asyncpg
from asyncpg.pool import PoolConnectionProxy

from kaos_memory.storage.postgres import time_limits
from kaos_memory.storage.postgres.schema import Schema
from kaos_memory.storage.protocol import StorageLost, StorageUnavailable
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
    # Another replica migrated the schema: statements are prepared anew the next time.
    asyncpg.InvalidCachedStatementError,
    # Cancelled from outside, timed out, deadlocked, out of memory or disk: later may work.
    asyncpg.InternalClientError,
    asyncpg.QueryCanceledError,
    asyncpg.LockNotAvailableError,
    asyncpg.exceptions.TransactionRollbackError,
    asyncpg.exceptions.InsufficientResourcesError,
)

_LOST = (
    asyncpg.UndefinedTableError,
    asyncpg.InvalidSchemaNameError,
    asyncpg.InvalidParameterValueError,  # a role that is no longer there
)
"""The schema is not what was prepared: dropped, or restored without its roles."""

_STATEMENTS = 100
"""More than there are, so that none is prepared twice."""
_ACQUIRE_SECONDS = 5.0


class Role(Enum):
    """As whom statements run."""

    REQUEST = "request"
    WORKER = "worker"


@dataclass(frozen=True)
class Subject:
    """What an erasure locks and remembers: a principal, or the whole store."""

    kind: str
    name: str


STORE = Subject("store", "")


class Database:
    """A pool of connections to one prepared schema."""

    def __init__(self, pool: asyncpg.Pool, schema: Schema, *, checks_client: bool) -> None:
        self._pool = pool
        self.schema = schema
        self._checks_client = checks_client

    @classmethod
    async def connect(cls, dsn: str, schema: Schema, most: int) -> "Database":
        """Open a pool of at most `most` connections; they are made when first needed.

        Statements are prepared once per connection, unless a pooler is between: there the next
        transaction may run on another connection, which does not know them.
        """
        pool = await asyncpg.create_pool(
            dsn,
            min_size=1,
            max_size=most,
            statement_cache_size=0 if schema.pooled else _STATEMENTS,
            timeout=_ACQUIRE_SECONDS,
            reset=_nothing_to_reset,
        )
        try:
            return cls(pool, schema, checks_client=await time_limits.can_check_client(pool))
        except BaseException:
            pool.terminate()
            raise

    async def close(self) -> None:
        """Close all connections; statements that run get a moment to end."""
        try:
            async with asyncio.timeout(5):
                await self._pool.close()
        except TimeoutError:
            self._pool.terminate()

    @asynccontextmanager
    async def read(
        self, owners: Owners, role: Role = Role.REQUEST, *, seconds: float | None = None
    ) -> AsyncGenerator[Connection]:
        """A read-only transaction that sees the rows of these owners.

        Like the others it raises `StorageUnavailable` where it takes too long: what a request
        may take, or `seconds`.
        """
        seconds = seconds or _seconds(role, time_limits.READ)
        bound = (_bound(owners.principal), _bound(owners.agent))
        begin = self._begin(role, *bound, seconds, readonly=True)
        async with self._transaction(begin, seconds) as connection:
            yield connection

    @asynccontextmanager
    async def anyone(self, role: Role) -> AsyncGenerator[Connection]:
        """A transaction without an owner: for due work, and for the store's own records."""
        seconds = _seconds(role, time_limits.CHANGE)
        async with self._transaction(self._begin(role, "", "", seconds), seconds) as connection:
            yield connection

    @asynccontextmanager
    async def everyone(self, role: Role) -> AsyncGenerator[Connection]:
        """A transaction over all owners' memory. No erasure of the whole store runs meanwhile."""
        begin = self._begin(role, "*", "*", time_limits.LONG, [self._lock(STORE, shared=True)])
        async with self._transaction(begin, time_limits.LONG) as connection:
            yield connection

    @asynccontextmanager
    async def change(self, principal: str, agent: str, role: Role) -> AsyncGenerator[Connection]:
        """A transaction that adds to one owner's memory. No erasure of it runs meanwhile."""
        seconds = _seconds(role, time_limits.CHANGE)
        locks = [self._lock(subject, shared=True) for subject in subjects(principal)]
        begin = self._begin(role, _bound(principal), _bound(agent), seconds, locks)
        async with self._transaction(begin, seconds) as connection:
            yield connection

    @asynccontextmanager
    async def erasure(
        self, owners: Owners, subject: Subject, *, seconds: float = time_limits.LONG
    ) -> AsyncGenerator[Connection]:
        """A transaction that erases: it runs alone among all that add to these owners' memory."""
        locks = [] if subject == STORE else [self._lock(STORE, shared=True)]
        locks.append(self._lock(subject, shared=False))
        bound = (_bound(owners.principal), _bound(owners.agent))
        begin = self._begin(Role.REQUEST, *bound, seconds, locks)
        async with self._transaction(begin, seconds) as connection:
            yield connection

    def _begin(
        self,
        role: Role,
        principal: str,
        agent: str,
        seconds: float,
        locks: Sequence[str] = (),
        *,
        readonly: bool = False,
    ) -> str:
        """The statements that open a transaction, sent as one: a single trip to the server.

        All settings are local to the transaction: it works through a pooler, and nothing is left
        behind for the next user of the connection. Locks are taken in the order given.
        """
        name = self.schema.request_role if role is Role.REQUEST else self.schema.worker_role
        settings = {
            "search_path": self.schema.search_path,
            "role": name,
            "kaos.principal": principal,
            "kaos.agent": agent,
            "statement_timeout": str(round(seconds * 1000)),
        }
        calls = [f"set_config('{key}', {_literal(value)}, true)" for key, value in settings.items()]
        if self._checks_client:
            calls.append(time_limits.CHECK_CLIENT)
        # Locks are a statement of their own: time limits hold from the next statement on.
        take = f"; SELECT {', '.join(locks)}" if locks else ""
        # Not left to the server's default: after waiting for a lock, statements must see what
        # was committed meanwhile. An older snapshot would make an erasure miss rows.
        mode = "ISOLATION LEVEL READ COMMITTED" + (", READ ONLY" if readonly else "")
        return f"BEGIN {mode}; SELECT {', '.join(calls)}{take}"

    def _lock(self, subject: Subject, *, shared: bool) -> str:
        function = "pg_advisory_xact_lock_shared" if shared else "pg_advisory_xact_lock"
        return f"{function}({self.schema.lock_key(subject.kind, subject.name)})"

    @asynccontextmanager
    async def _connection(self) -> AsyncGenerator[Connection]:
        # The pool's own time limit would start a task for each acquisition.
        async with asyncio.timeout(_ACQUIRE_SECONDS):
            connection = await self._pool.acquire()
        try:
            yield connection
        finally:
            await self._pool.release(connection)

    @asynccontextmanager
    async def _transaction(self, begin: str, seconds: float) -> AsyncGenerator[Connection]:
        try:
            async with (
                self._connection() as connection,
                asyncio.timeout(seconds + time_limits.GRACE),
            ):
                try:
                    await connection.execute(begin)
                    yield connection
                    await connection.execute("COMMIT")
                except (TimeoutError, asyncio.CancelledError):
                    # Out of time: a server that hangs would not answer a rollback either, so the
                    # connection goes, and the transaction with it.
                    connection.terminate()
                    raise
                except BaseException:
                    await _roll_back(connection)
                    raise
        except _LOST as error:
            raise StorageLost(type(error).__name__) from error
        except UNAVAILABLE as error:
            raise StorageUnavailable(type(error).__name__) from error


class OnDatabase:
    """Part of a storage: has the database as soon as it is open."""

    _database: Database | None = None

    @property
    def _db(self) -> Database:
        if self._database is None:
            raise StorageUnavailable("the database has not been reached yet")
        return self._database


def subjects(principal: str) -> tuple[Subject, Subject]:
    """All that an erasure of this principal's memory could be about, in the order of locking."""
    return STORE, Subject("principal", principal)


def erased_subject(owners: Owners) -> Subject:
    """The narrowest thing that covers all of these owners' memory.

    Erasures over several principals are rare and an admin's: each has the store to itself, so
    that no two of them, nor one of them and a principal's own, delete the same rows at once.
    """
    return STORE if owners.principal is None else Subject("principal", owners.principal)


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


def _seconds(role: Role, of_request: float) -> float:
    return of_request if role is Role.REQUEST else time_limits.WORK


def _bound(name: str | None) -> str:
    return "*" if name is None else f"={name}"


def _literal(text: str) -> str:
    """A text as SQL that nothing in it can leave: its bytes, spelled out."""
    return f"convert_from('\\x{text.encode().hex()}', 'UTF8')"


async def _roll_back(connection: Connection) -> None:
    """Leave the transaction, or, where that fails or is interrupted, the connection."""
    if not connection.is_in_transaction():
        return
    try:
        await connection.execute("ROLLBACK")
    except BaseException:
        connection.terminate()
        raise


async def _nothing_to_reset(_connection: asyncpg.Connection) -> None:
    """All settings are local to their transactions, so a used connection is as good as new."""
