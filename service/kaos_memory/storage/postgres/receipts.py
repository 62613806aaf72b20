"""Receipts of erasures in PostgreSQL."""

from collections.abc import AsyncIterator
from datetime import datetime
from uuid import UUID

import asyncpg

from kaos_memory.contract import Erasure
from kaos_memory.storage.postgres.database import Connection, OnDatabase, Role

# The time is read when the rows are gone: it is later than all that was erased.
_RECORD = """
    INSERT INTO erasures (id, level, principal, agent, session, fact, erased_by,
                          sessions, turns, digests, facts, residue, erased_at)
    VALUES (coalesce($1, gen_random_uuid()), $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12,
            coalesce($13, clock_timestamp()))
    ON CONFLICT (id) DO NOTHING
    RETURNING id, erased_at
"""
_ONE = """
    SELECT * FROM erasures
    WHERE id = $1 AND ($2::bytea IS NULL OR agent = $2 OR erased_by = $2)
"""
_PAGE = """
    SELECT * FROM erasures
    WHERE $1::timestamptz IS NULL OR (erased_at, id) > ($1, $2::uuid)
    ORDER BY erased_at, id LIMIT $3
"""
_PAGE_SIZE = 500
_LAST_ID = UUID(int=2**128 - 1)
_COUNTS = ("sessions", "turns", "digests", "facts", "residue")
_HASHES = {
    "principal": "principal_hash",
    "agent": "agent_hash",
    "session": "session_hash",
    "fact": "fact_hash",
    "erased_by": "erased_by",
}
"""Columns, and the fields of a receipt that show them."""


class Receipts(OnDatabase):
    """Reading receipts."""

    async def receipt(self, erasure_id: UUID, *, to: str | None = None) -> Erasure | None:
        """A receipt. An agent (`to`) gets those that are about it or that it asked for."""
        asking = None if to is None else self._db.schema.erasure_key.subject("agent", to)
        async with self._db.anyone(Role.REQUEST) as connection:
            row = await connection.fetchrow(_ONE, erasure_id, asking)
        return None if row is None else self._shown(row)

    async def receipts(self, after: datetime | None = None) -> AsyncIterator[Erasure]:
        """All receipts of erasures after a time, the oldest first."""
        position = (after, _LAST_ID)
        while True:
            async with self._db.anyone(Role.REQUEST) as connection:
                rows = await connection.fetch(_PAGE, *position, _PAGE_SIZE)
            for row in rows:
                yield self._shown(row)
            if len(rows) < _PAGE_SIZE:
                return
            position = (rows[-1]["erased_at"], rows[-1]["id"])

    def _shown(self, row: asyncpg.Record) -> Erasure:
        hashes = {field: _hex(row[column]) for column, field in _HASHES.items()}
        counts = {column: row[column] for column in _COUNTS}
        whole = {name: row[name] for name in ("id", "level", "erased_at")}
        key_id = self._db.schema.erasure_key.id
        return Erasure.model_validate({**whole, **counts, **hashes, "key_id": key_id})


async def record(connection: Connection, receipt: Erasure) -> Erasure:
    """Store a receipt that is not there yet; one without id and time gets both."""
    hashes: list[str | None] = [getattr(receipt, field) for field in _HASHES.values()]
    row = await connection.fetchrow(
        _RECORD,
        receipt.id,
        receipt.level,
        *(None if digest is None else bytes.fromhex(digest) for digest in hashes),
        *(getattr(receipt, column) for column in _COUNTS),
        receipt.erased_at,
    )
    return receipt.model_copy(update=dict(row or {}))


def _hex(digest: bytes | None) -> str | None:
    return None if digest is None else digest.hex()
