"""Filling tables fast: COPY in binary, and vector indexes built once over all rows."""

import hashlib
import struct
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import asyncpg
import numpy as np

from bench.known_facts import Vectors

_BUILD_MEMORY = "2GB"
"""The graph of 100,000 vectors of 1,536 dimensions fits: a build outside memory takes for ever."""

_VECTOR_INDEXES = """
    SELECT i.indexrelid::regclass::text AS name, pg_get_indexdef(i.indexrelid) AS definition
    FROM pg_index i
    JOIN pg_class c ON c.oid = i.indexrelid
    JOIN pg_am a ON a.oid = c.relam
    WHERE a.amname IN ('hnsw', 'ivfflat') AND NOT c.relispartition
        AND (i.indrelid = $1::text::regclass
            OR i.indrelid IN (SELECT relid FROM pg_partition_tree($1::text::regclass)))
"""


@asynccontextmanager
async def connected(dsn: str) -> AsyncGenerator[asyncpg.Connection]:
    """Connect, and send vectors as the bytes that `vectors` and `half_vectors` make."""
    connection = await asyncpg.connect(dsn)
    try:
        for name in ("vector", "halfvec"):
            await connection.set_type_codec(
                name, schema="public", encoder=bytes, decoder=bytes, format="binary"
            )
        yield connection
    finally:
        await connection.close()


def vectors(rows: Vectors) -> list[bytes]:
    """Rows as pgvector receives its `vector`."""
    return _encoded(rows, ">f4")


def half_vectors(rows: Vectors) -> list[bytes]:
    """Rows as pgvector receives its `halfvec`."""
    return _encoded(rows, ">f2")


def _encoded(rows: Vectors, number: str) -> list[bytes]:
    head = struct.pack(">HH", rows.shape[1], 0)
    return [head + row.tobytes() for row in rows.astype(np.dtype(number))]


@asynccontextmanager
async def vector_indexes_rebuilt(admin: asyncpg.Connection, table: str) -> AsyncGenerator[None]:
    """Take a table's vector indexes away while rows are added, and build them again after it.

    One row after the other, an HNSW index of 100,000 rows would take a quarter of an hour.
    """
    indexes = await admin.fetch(_VECTOR_INDEXES, table)
    for index in indexes:
        await admin.execute(f"DROP INDEX {index['name']}")
    yield
    await admin.execute(f"SET maintenance_work_mem = '{_BUILD_MEMORY}'")
    for index in indexes:
        # Of a partitioned table the definition names the parent alone.
        await admin.execute(index["definition"].replace(" ON ONLY ", " ON ", 1))
    await admin.execute("RESET maintenance_work_mem")


def text_hash(text: str) -> str:
    """What both services tell identical facts by."""
    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()
