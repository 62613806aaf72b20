"""The `Storage` of one store in PostgreSQL with pgvector."""

import asyncio
from datetime import timedelta

import asyncpg

from kaos_memory.settings import ExternalStorage, LongTerm
from kaos_memory.storage.postgres.awaiting import await_extraction
from kaos_memory.storage.postgres.conversations import Conversations
from kaos_memory.storage.postgres.database import UNAVAILABLE, Database, Role
from kaos_memory.storage.postgres.erasures import Erasures
from kaos_memory.storage.postgres.fact_records import FactRecords
from kaos_memory.storage.postgres.facts import Facts
from kaos_memory.storage.postgres.receipts import Receipts
from kaos_memory.storage.postgres.schema import Schema, StoreIdentity, prepare
from kaos_memory.storage.postgres.search import Search
from kaos_memory.storage.postgres.upkeep import Upkeep
from kaos_memory.storage.postgres.vector_indexes import VectorIndexes
from kaos_memory.storage.postgres.work import Work
from kaos_memory.storage.protocol import StorageLost, StorageUnavailable
from kaos_memory.tiers.window import Compaction

_AS_BY_DEFAULT = LongTerm()


class PostgresStorage(
    Conversations, Facts, FactRecords, Search, VectorIndexes, Work, Erasures, Receipts, Upkeep
):
    """All tiers of one store, in one schema."""

    def __init__(
        self,
        external: ExternalStorage,
        identity: StoreIdentity,
        compaction: Compaction,
        *,
        idle_after: timedelta,
        digest_retention: int,
        provenance: tuple[str, str],
        connections: int,
        long_term: LongTerm = _AS_BY_DEFAULT,
    ) -> None:
        self._external = external
        self._identity = identity
        self._compaction = compaction
        self._idle_after = idle_after
        self._digest_retention = digest_retention
        self._provenance = provenance
        self._connections = connections
        self._long_term = long_term
        self._opening = asyncio.Lock()

    async def open(self) -> None:
        """Connect, migrate, check. Raises `StorageMisconfigured` where that cannot be mended."""
        dsn = self._external.dsn.get_secret_value()
        try:
            async with self._opening:
                if self._database is None:
                    schema = await prepare(dsn, self._external.collection, self._identity)
                    self._database = await self._connected(dsn, schema)
        except (*UNAVAILABLE, asyncpg.PostgresError) as error:
            raise StorageUnavailable(type(error).__name__) from error

    async def _connected(self, dsn: str, schema: Schema) -> Database:
        database = await Database.connect(dsn, schema, self._connections)
        try:
            if self._compaction.extract:
                await await_extraction(database, self._idle_after)
        except BaseException:
            await database.close()
            raise
        return database

    async def close(self) -> None:
        """Let go of all connections."""
        database, self._database = self._database, None
        if database is not None:
            await database.close()

    async def ping(self) -> None:
        """Prove that statements are answered; prepare anew what was lost meanwhile."""
        await self.open()
        try:
            async with asyncio.timeout(2), self._db.anyone(Role.REQUEST) as connection:
                await connection.fetchval("SELECT 1 FROM sessions LIMIT 1")
        except StorageLost:
            await self.close()
            await self.open()
