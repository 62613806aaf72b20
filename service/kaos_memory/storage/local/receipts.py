"""Receipts of erasures in SQLite, and whom they are about."""

from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from datetime import datetime
from functools import partial
from uuid import UUID, uuid4

from kaos_memory.contract import Erasure
from kaos_memory.storage.erasure_key import ErasureKey
from kaos_memory.storage.local.database import (
    Connection,
    OnDatabase,
    Row,
    micros,
    moment,
    now,
    one,
    where,
)
from kaos_memory.tiers.reach import Owners

_RECORD = """
    INSERT INTO erasures (id, level, principal, agent, session, fact, erased_by,
                          sessions, turns, digests, facts, residue, erased_at)
    VALUES (:id, :level, :principal, :agent, :session, :fact, :erased_by,
            :sessions, :turns, :digests, :facts, :residue, :erased_at)
    ON CONFLICT (id) DO NOTHING
"""
_ONE = """
    SELECT * FROM erasures
    WHERE id = :id AND (:asking IS NULL OR agent = :asking OR erased_by = :asking)
"""
_PAGE = """
    SELECT * FROM erasures WHERE (erased_at, id) > (:after, :last)
    ORDER BY erased_at, id LIMIT :most
"""
_NAMES = """
    SELECT {column} FROM sessions s WHERE {of_sessions}
    UNION SELECT {column} FROM facts f WHERE {of_facts}
"""
_PAGE_SIZE = 500
_LAST_ID = b"\xff" * 16
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

    _key: ErasureKey

    async def receipt(self, erasure_id: UUID, *, to: str | None = None) -> Erasure | None:
        """A receipt. An agent (`to`) gets those that are about it or that it asked for."""
        asking = None if to is None else self._key.subject("agent", to)
        named = {"id": erasure_id.bytes, "asking": asking}
        row = await self._db.read(lambda connection: one(connection, _ONE, named))
        return None if row is None else self._shown(row)

    async def receipts(self, after: datetime | None = None) -> AsyncIterator[Erasure]:
        """All receipts of erasures after a time, the oldest first."""
        position = (0 if after is None else micros(after), _LAST_ID)
        while True:
            rows = await self._db.read(partial(_page, position=position))
            for row in rows:
                yield self._shown(row)
            if len(rows) < _PAGE_SIZE:
                return
            position = (rows[-1]["erased_at"], rows[-1]["id"])

    def _shown(self, row: Row) -> Erasure:
        hashes = {field: _hex(row[column]) for column, field in _HASHES.items()}
        counts = {column: row[column] for column in _COUNTS}
        whole = {
            "id": UUID(bytes=row["id"]),
            "level": row["level"],
            "erased_at": moment(row["erased_at"]),
            "key_id": self._key.id,
        }
        return Erasure.model_validate({**whole, **counts, **hashes})


def _page(connection: Connection, position: tuple[int, bytes]) -> list[Row]:
    after, last = position
    named = {"after": after, "last": last, "most": _PAGE_SIZE}
    return connection.execute(_PAGE, named).fetchall()


def record(connection: Connection, receipt: Erasure) -> Erasure:
    """Store a receipt that is not there yet; one without id and time gets both."""
    whole = receipt.model_copy(
        update={
            "id": receipt.id or uuid4(),
            # Read when the rows are gone: it is later than all that was erased.
            "erased_at": receipt.erased_at or moment(now()),
        }
    )
    assert whole.id is not None and whole.erased_at is not None  # noqa: PT018, S101 - just given
    hashes = {column: getattr(whole, field) for column, field in _HASHES.items()}
    connection.execute(
        _RECORD,
        {
            "id": whole.id.bytes,
            "level": whole.level,
            "erased_at": micros(whole.erased_at),
            **{column: getattr(whole, column) for column in _COUNTS},
            **{column: digest and bytes.fromhex(digest) for column, digest in hashes.items()},
        },
    )
    return whole


def recorded_owners(connection: Connection, key: ErasureKey, receipt: Erasure) -> Owners | None:
    """The owners that a receipt names by hashes; None where the database has none of them."""
    owners = Owners()
    hashes: Mapping[str, str | None] = {
        "principal": receipt.principal_hash,
        "agent": receipt.agent_hash,
        "session": receipt.session_hash,
    }
    for column, wanted in hashes.items():
        if wanted is not None:
            name = _name(connection, key, owners, column, wanted)
            if name is None:
                return None
            owners = replace(owners, **{column: name})
    return owners


def _name(
    connection: Connection, key: ErasureKey, owners: Owners, column: str, wanted: str
) -> str | None:
    of_sessions, named = where(owners, "s")
    of_facts, _ = where(owners, "f")
    query = _NAMES.format(column=column, of_sessions=of_sessions, of_facts=of_facts)
    names = (row[0] for row in connection.execute(query, named))
    return next((name for name in names if key.subject(column, name).hex() == wanted), None)


def _hex(digest: bytes | None) -> str | None:
    return None if digest is None else digest.hex()
