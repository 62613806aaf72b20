"""Every byte that a storage keeps, searched for sentences."""

import re
from pathlib import Path

import asyncpg

from ..service.conftest import Where
from .scripted_model import MARKER

_TABLES = """
    SELECT c.oid::regclass::text AS name
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition
        AND n.nspname NOT IN ('pg_catalog', 'information_schema')
"""
_BYTES = re.compile(r'"\\\\x([0-9a-f]+)"')


class Traces:
    """Looks past everything that guards a storage: as the superuser, or into the files."""

    def __init__(self, where: Where) -> None:
        self._where = where
        self._connection: asyncpg.Connection | None = None
        self._dump = ""

    async def aclose(self) -> None:
        """Close the connection, if there is one."""
        if self._connection is not None:
            await self._connection.close()

    async def markers(self) -> set[str]:
        """All markers of which there is a trace, in whatever row or file."""
        if isinstance(self._where, Path):
            files = [path for path in self._where.parent.rglob("*") if path.is_file()]
            return set(
                MARKER.findall("\n".join(path.read_bytes().decode("latin-1") for path in files))
            )
        rows = "\n".join(row[0] for row in await self._rows(self._where))
        packed = [bytes.fromhex(found).decode("latin-1") for found in _BYTES.findall(rows)]
        return set(MARKER.findall("\n".join([rows, *packed])))

    async def _rows(self, dsn: str) -> list[asyncpg.Record]:
        connection = self._connection
        if connection is None:
            self._connection = connection = await asyncpg.connect(dsn)
            tables = [row["name"] for row in await connection.fetch(_TABLES)]
            self._dump = " UNION ALL ".join(f"SELECT to_jsonb(t)::text FROM {t} t" for t in tables)
        return await connection.fetch(self._dump)
