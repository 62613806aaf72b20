"""A SQLite file: one thread that writes, a few that read; each transaction is one call on them.

A transaction never waits for the event loop, so a caller who gives up cannot leave one open.
"""

import asyncio
import contextlib
import os
import sqlite3
import threading
from collections.abc import Callable, Generator, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from queue import SimpleQueue
from typing import Any, TypeVar

from kaos_memory.storage.protocol import StorageLost, StorageMisconfigured, StorageUnavailable
from kaos_memory.tiers.reach import Owners

Connection = sqlite3.Connection
Row = sqlite3.Row

READERS = 4
_BUSY_SECONDS = 10.0
"""How long a statement waits for a lock that another connection of this process has."""
_PAGE_BYTES = 16_384
"""Several facts with their vectors fit into a page: reading 1,000 took half of the time that it
took with 4,096 bytes."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)

_T = TypeVar("_T")


class _GivenUp(Exception):
    """Nobody waits for the transaction any more."""


class Database:
    """The connections to one open file.

    Args:
        path: The file; it is made where it is not there yet.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._writing = ThreadPoolExecutor(1, f"{path.stem}-writer")
        self._reading = ThreadPoolExecutor(READERS, f"{path.stem}-reader")
        self._writer: Connection | None = None
        self._readers: SimpleQueue[Connection] = SimpleQueue()
        self._file: tuple[int, int] = (0, 0)

    def open(self, prepare: Callable[[Connection], _T]) -> _T:
        """Connect in this thread, and prepare the file before anybody reads it."""
        with _told(), _fit(self.path):
            # Not left to SQLite, which would let everybody read the file.
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
            self._file = _identity(self.path)
            self._writer = self._connect(writing=True)
            prepared = prepare(self._writer)
            for _ in range(READERS):
                self._readers.put(self._connect(writing=False))
            return prepared

    def close(self) -> None:
        """Wait for what runs, then let go of the file."""
        self._reading.shutdown()
        self._writing.shutdown()
        while not self._readers.empty():
            self._readers.get().close()
        if self._writer is not None:
            # Also a file that is gone or broken is let go of.
            with contextlib.suppress(sqlite3.Error):
                checkpoint(self._writer)
            self._writer.close()

    async def read(self, look: Callable[[Connection], _T]) -> _T:
        """What one transaction sees. It waits for no writer, and none waits for it."""
        return await _run(self._reading, lambda _: self.read_here(look))

    async def write(self, change: Callable[[Connection], _T]) -> _T:
        """Change everything or nothing. It is on the disk when this returns.

        A caller that gives up before the commit leaves nothing behind.
        """
        return await _run(self._writing, lambda given_up: self._write(change, given_up))

    def read_here(self, look: Callable[[Connection], _T]) -> _T:
        """The same as `read`, in this thread."""
        connection = self._readers.get()
        try:
            with _told(), _transaction(connection, "BEGIN"):
                return look(connection)
        finally:
            self._readers.put(connection)

    def write_from_thread(self, change: Callable[[Connection], _T]) -> _T:
        """The same as `write`, for threads other than the event loop's."""
        return self._writing.submit(self._write, change, threading.Event()).result()

    async def alone(self, work: Callable[[Connection], _T]) -> _T:
        """Run on the writing thread without a transaction."""

        def told(_: threading.Event) -> _T:
            with _told():
                return work(self._connection)

        return await _run(self._writing, told)

    def check_file(self) -> None:
        """Raise `StorageLost` where the file is no longer the one that was opened."""
        with _told():
            if _identity(self.path) != self._file:
                raise StorageLost("the database file was replaced")

    @property
    def _connection(self) -> Connection:
        if self._writer is None:
            raise StorageUnavailable("the database is not open")
        return self._writer

    def _write(self, change: Callable[[Connection], _T], given_up: threading.Event) -> _T:
        with _told(), _transaction(self._connection, "BEGIN IMMEDIATE"):
            changed = change(self._connection)
            # What is written to a file without a name would be gone with this process.
            self.check_file()
            if given_up.is_set():
                raise _GivenUp
            return changed

    def _connect(self, *, writing: bool) -> Connection:
        connection = sqlite3.connect(
            self.path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False
        )
        connection.row_factory = sqlite3.Row
        settings = {
            "page_size": _PAGE_BYTES,
            "trusted_schema": "OFF",
            "foreign_keys": "ON",
            "secure_delete": "ON",
            "synchronous": "FULL",
            "cache_size": -16_000,  # KiB
            "query_only": "OFF" if writing else "ON",
        }
        for name, value in settings.items():
            connection.execute(f"PRAGMA {name} = {value}")
        if writing:
            connection.execute("PRAGMA journal_mode = WAL")
        return connection


class OnDatabase:
    """Part of a storage: has the database as soon as it is open."""

    _database: Database | None = None

    @property
    def _db(self) -> Database:
        if self._database is None:
            raise StorageUnavailable("the database has not been opened yet")
        return self._database


def one(connection: Connection, query: str, values: Mapping[str, Any]) -> Row | None:
    """The first row of a statement's answer."""
    rows = connection.execute(query, values).fetchall()
    return rows[0] if rows else None


def value(connection: Connection, query: str, values: Mapping[str, Any]) -> Any:
    """The only value of a statement's answer; None where there is no row."""
    row = one(connection, query, values)
    return None if row is None else row[0]


def where(owners: Owners, alias: str) -> tuple[str, dict[str, str]]:
    """The condition that binds owners, and its values. Nothing else keeps tenants apart here."""
    named = {
        "principal": owners.principal,
        "agent": owners.agent,
        "session": owners.session,
    }
    given = {column: name for column, name in named.items() if name is not None}
    return " AND ".join(f"{alias}.{column} = :{column}" for column in given) or "true", given


def checkpoint(connection: Connection) -> None:
    """Move everything into the file and empty the log, so that no older version of a page stays.

    Raises:
        StorageUnavailable: a reader was in the way for too long.
    """
    busy, _, _ = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    if busy:
        raise StorageUnavailable("the log could not be emptied")


def now() -> int:
    """The time, as `micros`."""
    return micros(datetime.now(UTC))


def micros(moment: datetime) -> int:
    """A time as it is stored: microseconds since 1970 in UTC."""
    return (moment - _EPOCH) // _MICROSECOND


def moment(stored: int) -> datetime:
    """The time that was stored."""
    return _EPOCH + stored * _MICROSECOND


def span(length: timedelta) -> int:
    """A length of time, in microseconds."""
    return length // _MICROSECOND


async def _run(executor: Executor, job: Callable[[threading.Event], _T]) -> _T:
    given_up = threading.Event()
    try:
        future = executor.submit(job, given_up)
    except RuntimeError:  # it was shut down
        raise StorageUnavailable("the database is closed") from None
    try:
        return await asyncio.wrap_future(future)
    except asyncio.CancelledError:
        given_up.set()
        raise


@contextlib.contextmanager
def _transaction(connection: Connection, begin: str) -> Generator[None]:
    connection.execute(begin)
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


@contextlib.contextmanager
def _told() -> Generator[None]:
    """SQLite's failures in the storage's words: its own may quote what was stored."""
    try:
        yield
    except sqlite3.IntegrityError:
        raise  # a defect of ours, not of the disk
    except FileNotFoundError as error:
        raise StorageLost("the database file is gone") from error
    except (sqlite3.DatabaseError, OSError) as error:
        reason = getattr(error, "sqlite_errorname", type(error).__name__)
        raise StorageUnavailable(reason) from error


@contextlib.contextmanager
def _fit(path: Path) -> Generator[None]:
    try:
        yield
    except sqlite3.DatabaseError as error:
        if getattr(error, "sqlite_errorname", "") not in {"SQLITE_NOTADB", "SQLITE_CORRUPT"}:
            raise
        raise StorageMisconfigured(
            f"{path} is not a database of this service, or is damaged; restore it from a backup, "
            "or set storage.local.path to another directory"
        ) from None


def _identity(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_dev, found.st_ino
