"""Indexes of embeddings: made where an owner has too many facts to compare them all.

At 384 dimensions an index makes storing a fact 40 times dearer (0.09 ms became 3.4 ms; building
it later takes 0.4 ms a fact), and most stores never need one, so no migration makes any. Each
partition of the facts gets its own as soon as it holds an owner above the limit: at most one for
each partition, however many owners there are. They are built concurrently; writes go on. Until
one is there, search compares all of the owner's facts instead: slower, and as exact.
"""

from typing import Final

import asyncpg

from kaos_memory.settings import ExternalStorage, LongTerm
from kaos_memory.storage.postgres.database import UNAVAILABLE, OnDatabase, Role
from kaos_memory.storage.postgres.schema import connect
from kaos_memory.storage.protocol import StorageUnavailable

MAX_DIMS: Final = 4_000
"""Dimensions that pgvector can index; larger embeddings are always compared one by one."""

_BUILD_SECONDS: Final = 6 * 3_600.0
"""An index of ten million facts takes an hour; one that is interrupted is made anew."""

# A partition that is smaller than the vectors of so many facts needs no counting.
_WITHOUT_INDEX = """
    WITH indexed AS (
        SELECT i.indrelid, i.indisvalid, format('%I.%I', n.nspname, c.relname) AS name
        FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
            JOIN pg_namespace n ON n.oid = c.relnamespace JOIN pg_am a ON a.oid = c.relam
        WHERE a.amname = 'hnsw'
    )
    SELECT c.oid, format('%I.%I', n.nspname, c.relname) AS partition,
           format('%I', c.relname || '_embedding') AS index,
           (SELECT name FROM indexed i WHERE i.indrelid = c.oid LIMIT 1) AS broken
    FROM pg_inherits h JOIN pg_class c ON c.oid = h.inhrelid
        JOIN pg_namespace n ON n.oid = c.relnamespace
        JOIN pg_attribute e ON e.attrelid = h.inhparent AND e.attname = 'embedding'
    WHERE h.inhparent = 'facts'::regclass AND e.atttypmod <= $2
        AND pg_table_size(c.oid) > $1::bigint * 2 * e.atttypmod
        AND NOT EXISTS (SELECT FROM indexed i WHERE i.indrelid = c.oid AND i.indisvalid)
        AND NOT EXISTS (SELECT FROM pg_stat_progress_create_index p WHERE p.relid = c.oid)
"""
_CROWDED = """
    SELECT DISTINCT tableoid AS oid FROM facts WHERE tableoid = ANY($1::oid[])
    GROUP BY tableoid, principal HAVING count(*) > $2
"""


class VectorIndexes(OnDatabase):
    """Making the indexes that searches need."""

    _external: ExternalStorage
    _long_term: LongTerm

    async def index_large_owners(self) -> int:
        """Make the indexes that are missing, one after the other. Returns how many there were.

        To be called now and then, by any number of replicas: what one of them builds, the others
        leave alone. It takes as long as the building.

        Raises:
            StorageUnavailable: not now; nothing is left that a later call does not mend.
        """
        limit = self._long_term.exact_search_limit
        async with self._db.everyone(Role.WORKER) as connection:
            without = await connection.fetch(_WITHOUT_INDEX, limit, MAX_DIMS)
            oids = [row["oid"] for row in without]
            crowded = {row["oid"] for row in await connection.fetch(_CROWDED, oids, limit)}
        missing = [row for row in without if row["oid"] in crowded]
        for row in missing:
            await self._build(row["partition"], row["index"], row["broken"])
        return len(missing)

    async def _build(self, partition: str, index: str, broken: str | None) -> None:
        try:
            # As the schema's owner, and outside of transactions, as building concurrently must be.
            connection = await connect(self._external.dsn.get_secret_value())
            try:
                if broken is not None:  # a build that was interrupted
                    await connection.execute(f"DROP INDEX CONCURRENTLY IF EXISTS {broken}")
                await connection.execute(
                    f"CREATE INDEX CONCURRENTLY IF NOT EXISTS {index} ON {partition} "
                    "USING hnsw (embedding halfvec_cosine_ops)",
                    timeout=_BUILD_SECONDS,
                )
            finally:
                await connection.close()
        except (*UNAVAILABLE, asyncpg.PostgresError) as error:
            raise StorageUnavailable(type(error).__name__) from error
