"""Facts in PostgreSQL: lists of them, and the nearest of a session. `search` finds them."""

import base64
import binascii
from collections.abc import Sequence
from datetime import UTC, datetime
from uuid import UUID

import asyncpg

from kaos_memory.contract import MAX_PAGE_BYTES, MAX_RECALL_BYTES
from kaos_memory.engine.protocols import Neighbour
from kaos_memory.storage.postgres.database import OnDatabase, Role, where
from kaos_memory.storage.protocol import InvalidCursor
from kaos_memory.tiers.memory import Fact, Owner
from kaos_memory.tiers.reach import Owners

FACT = "f.id, f.principal, f.agent, f.session, f.text, f.hash, f.created_at, f.updated_at"

_NEWEST = f"""
    SELECT * FROM (
        SELECT *, sum(octet_length(text)) OVER (ORDER BY created_at DESC, id)
            - octet_length(text) AS before
        FROM (
            SELECT * FROM (
                SELECT DISTINCT ON (f.hash) {FACT} FROM facts f WHERE {{condition}}
                ORDER BY f.hash, f.created_at DESC, f.id
            ) different
            ORDER BY created_at DESC, id LIMIT $1
        ) newest
    ) f
    WHERE before < $2 ORDER BY created_at DESC, id
"""
# A page ends early where its texts grow over a bound; its first fact is always on it.
_PAGE = f"""
    SELECT * FROM (
        SELECT {FACT}, count(*) OVER () AS found,
               sum(octet_length(f.text)) OVER (ORDER BY f.created_at, f.id)
                   - octet_length(f.text) AS before
        FROM (
            SELECT * FROM facts f
            WHERE {{condition}} AND (f.created_at, f.id) > ($1::timestamptz, $2::uuid)
            ORDER BY f.created_at, f.id LIMIT $3
        ) f
    ) page
    WHERE before < $4 ORDER BY created_at, id
"""
_NEIGHBOURS = """
    SELECT f.id, f.text, f.hash, 1 - (f.embedding <=> (SELECT $1::real[]::halfvec)) AS score
    FROM facts f WHERE f.principal = $2 AND f.agent = $3 AND f.session = $4
    ORDER BY score DESC LIMIT $5
"""
_BEFORE_ALL = (datetime.fromisoformat("0001-01-02T00:00:00+00:00"), UUID(int=0))


class Facts(OnDatabase):
    """Reading facts."""

    async def newest_facts(self, owners: Owners, most: int) -> list[Fact]:
        """The latest facts, newest first; identical texts count once.

        They end early where their texts grow over `MAX_RECALL_BYTES`.
        """
        condition, arguments = where(owners, "f", first=3)
        async with self._db.read(owners) as connection:
            rows = await connection.fetch(
                _NEWEST.replace("{condition}", condition), most, MAX_RECALL_BYTES, *arguments
            )
        return [fact(row) for row in rows]

    async def list_facts(
        self, owners: Owners, most: int, cursor: str | None
    ) -> tuple[list[Fact], str | None]:
        """A page of all facts in the order they were made, and the next page's cursor."""
        after = _BEFORE_ALL if cursor is None else _parse(cursor)
        condition, arguments = where(owners, "f", first=5)
        async with self._db.read(owners) as connection:
            rows = await connection.fetch(
                _PAGE.replace("{condition}", condition),
                *after,
                most + 1,
                MAX_PAGE_BYTES,
                *arguments,
            )
        facts = [fact(row) for row in rows[:most]]
        more = bool(rows) and rows[0]["found"] > len(facts)
        return facts, _cursor(facts[-1]) if more else None

    async def neighbours(
        self, owner: Owner, embedding: Sequence[float], most: int
    ) -> list[Neighbour]:
        """The facts of an owner's session nearest to an embedding."""
        async with self._db.read(Owners(owner.principal, owner.agent), Role.WORKER) as connection:
            rows = await connection.fetch(
                _NEIGHBOURS, embedding, owner.principal, owner.agent, owner.session, most
            )
        return [
            Neighbour(id=str(row["id"]), text=row["text"], hash=row["hash"], score=row["score"])
            for row in rows
        ]


def vector(embedding: Sequence[float]) -> str:
    """An embedding as pgvector reads it."""
    return f"[{','.join(map(repr, embedding))}]"


def fact(row: asyncpg.Record, score: float | None = None) -> Fact:
    """The fact of a row with the columns `FACT`."""
    return Fact(
        id=row["id"],
        principal=row["principal"],
        agent=row["agent"],
        session=row["session"],
        text=row["text"],
        hash=row["hash"],
        created_at=row["created_at"],
        updated_at=row["updated_at"],
        score=score,
    )


def _cursor(last: Fact) -> str:
    return base64.urlsafe_b64encode(f"{last.created_at.isoformat()} {last.id}".encode()).decode()


def _parse(cursor: str) -> tuple[datetime, UUID]:
    try:
        made, _, identity = base64.urlsafe_b64decode(cursor.encode()).decode().partition(" ")
        return datetime.fromisoformat(made).astimezone(UTC), UUID(identity)
    except (ValueError, OverflowError, binascii.Error):
        raise InvalidCursor from None
