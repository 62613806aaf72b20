"""The `Storage` of one store in SQLite and Chroma, in one directory, for one process."""

import asyncio
import fcntl
import os
from datetime import timedelta
from pathlib import Path

from kaos_memory.settings import LocalStorage as Settings
from kaos_memory.settings import LongTerm
from kaos_memory.storage.local.claims import Claims
from kaos_memory.storage.local.conversations import Conversations
from kaos_memory.storage.local.database import Database
from kaos_memory.storage.local.erasures import Erasures
from kaos_memory.storage.local.fact_records import FactRecords
from kaos_memory.storage.local.facts import Facts
from kaos_memory.storage.local.index import FactIndex
from kaos_memory.storage.local.receipts import Receipts
from kaos_memory.storage.local.schema import StoreIdentity, prepare
from kaos_memory.storage.local.search import Search
from kaos_memory.storage.local.upkeep import Upkeep
from kaos_memory.storage.local.work import Work
from kaos_memory.storage.protocol import StorageLost, StorageMisconfigured, StorageUnavailable
from kaos_memory.tiers.window import Compaction

_PING = "SELECT 1 FROM sessions LIMIT 1"


class LocalStorage(
    Conversations, Facts, FactRecords, Search, Claims, Work, Erasures, Receipts, Upkeep
):
    """All tiers of one store, in one directory."""

    def __init__(
        self,
        local: Settings,
        identity: StoreIdentity,
        compaction: Compaction,
        *,
        idle_after: timedelta,
        digest_retention: int,
        provenance: tuple[str, str],
        long_term: LongTerm,
    ) -> None:
        self._directory = Path(local.path).absolute()
        self._collection = local.collection
        self._identity = identity
        self._compaction = compaction
        self._idle_after = idle_after
        self._digest_retention = digest_retention
        self._provenance = provenance
        self._long_term = long_term
        self._opening = asyncio.Lock()
        self._lock: int | None = None

    async def open(self) -> None:
        """Make, lock, migrate, check. Raises `StorageMisconfigured` where that cannot be mended."""
        async with self._opening:
            if self._database is None:
                await asyncio.shield(asyncio.to_thread(self._open))

    async def close(self) -> None:
        """Let go of all files."""
        async with self._opening:
            database, self._database = self._database, None
            if database is not None:
                await asyncio.shield(asyncio.to_thread(self._close, database))

    async def ping(self) -> None:
        """Prove that statements are answered; open anew what was lost meanwhile."""
        await self.open()
        try:
            self._db.check_file()
            await self._db.read(lambda connection: connection.execute(_PING).fetchone())
        except StorageLost:
            await self.close()
            await self.open()

    def _open(self) -> None:
        self._lock = _locked(_made(self._directory))
        # Where SQLite writes the file anew, the parts that do not fit into memory stay in here.
        os.environ["SQLITE_TMPDIR"] = str(self._directory)
        database = Database(self._directory / f"{self._collection}.sqlite3")
        try:
            self._key = database.open(lambda c: prepare(c, database.path, self._identity))
            if self._compaction.extract:
                database.write_from_thread(self._await_extraction)
            self._index = FactIndex(database, self._collection)
        except BaseException:
            database.close()
            self._unlock()
            raise
        self._database = database

    def _close(self, database: Database) -> None:
        self._index.close()
        database.close()
        self._unlock()

    def _unlock(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def _made(directory: Path) -> Path:
    """The directory, made where it is not there yet; nobody else may look into it."""
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise _unusable(directory, error) from None
    return directory


def _locked(directory: Path) -> int:
    """The open lock file of the directory, which is this process's alone until it is closed."""
    try:
        lock = os.open(directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise _unusable(directory, error) from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        raise StorageMisconfigured(
            f"{directory} is in use by another process, and local storage is for one; stop that "
            "process, give this store another storage.local.path, or use storage.type external, "
            "which any number of replicas share"
        ) from None
    except OSError as error:
        os.close(lock)
        raise _unusable(directory, error) from None
    return lock


def _unusable(directory: Path, error: OSError) -> StorageUnavailable | StorageMisconfigured:
    if isinstance(error, FileNotFoundError):
        return StorageUnavailable(type(error).__name__)
    reason = os.strerror(error.errno or 0).lower()
    return StorageMisconfigured(
        f"{directory} cannot be written ({reason}); make it a directory that this process may "
        "write, or set storage.local.path to one"
    )
