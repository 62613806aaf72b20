"""Facts in SQLite: lists of them, and the nearest of a session. `search` finds them."""

import base64
import binascii
from collections.abc import Iterable, Iterator, Sequence
from uuid import UUID

from kaos_memory.contract import MAX_PAGE_BYTES, MAX_RECALL_BYTES
from kaos_memory.engine.protocols import Neighbour
from kaos_memory.storage.local import vectors
from kaos_memory.storage.local.database import (
    Connection,
    OnDatabase,
    Row,
    moment,
    where,
)
from kaos_memory.storage.protocol import InvalidCursor
from kaos_memory.tiers.memory import Fact, Owner
from kaos_memory.tiers.reach import Owners

_FACT = (
    "f.number, f.id, f.principal, f.agent, f.session, f.text, f.hash, f.created_at, f.updated_at"
)
_NEIGHBOURS = """
    SELECT f.id, f.text, f.hash, v.embedding FROM facts f JOIN vectors v ON v.number = f.number
    WHERE {condition} ORDER BY f.number
"""
_FACT_OF = f"SELECT {_FACT} FROM facts f WHERE {{condition}} AND f.number = :number"
# The last of several facts with the same text stands for them all.
_NEWEST = f"""
    SELECT {_FACT} FROM facts f JOIN (
        SELECT max(number) AS number FROM facts f WHERE {{condition}} GROUP BY hash
    ) latest ON latest.number = f.number
    WHERE {{condition}} ORDER BY f.number DESC LIMIT :most
"""
_PAGE = f"SELECT {_FACT} FROM facts f WHERE {{condition}} AND f.number > :after ORDER BY f.number"
_MAX_NUMBER = 2**63 - 1


class Facts(OnDatabase):
    """Reading facts."""

    async def newest_facts(self, owners: Owners, most: int) -> list[Fact]:
        """The latest facts, newest first; identical texts count once.

        They end early where their texts grow over `MAX_RECALL_BYTES`.
        """
        condition, named = where(owners, "f")
        query = _NEWEST.replace("{condition}", condition)

        def look(connection: Connection) -> list[Fact]:
            rows = connection.execute(query, {**named, "most": most})
            return [_fact(row) for row in _first_of(rows)]

        return await self._db.read(look)

    async def list_facts(
        self, owners: Owners, most: int, cursor: str | None
    ) -> tuple[list[Fact], str | None]:
        """A page of all facts in the order they were made, and the next page's cursor."""
        after = 0 if cursor is None else _parse(cursor)
        return await self._db.read(lambda connection: _page(connection, owners, most, after))

    async def neighbours(
        self, owner: Owner, embedding: Sequence[float], most: int
    ) -> list[Neighbour]:
        """The facts of an owner's session nearest to an embedding."""
        of_session = Owners(owner.principal, owner.agent, owner.session)

        def look(connection: Connection) -> list[Neighbour]:
            vectors.check_dims(connection, embedding)
            condition, named = where(of_session, "f")
            rows = connection.execute(_NEIGHBOURS.replace("{condition}", condition), named)
            found = rows.fetchall()
            scores = vectors.cosines([row["embedding"] for row in found], embedding)
            return [
                Neighbour(
                    id=str(UUID(bytes=found[at]["id"])),
                    text=found[at]["text"],
                    hash=found[at]["hash"],
                    score=float(scores[at]),
                )
                for at in (-scores).argsort(kind="stable")[:most]
            ]

        return await self._db.read(look)


def in_order(
    connection: Connection, owners: Owners, places: Sequence[tuple[int, float | None]]
) -> list[Fact]:
    """The owners' facts with these numbers, each with its score, up to `MAX_RECALL_BYTES`."""
    condition, named = where(owners, "f")
    query = _FACT_OF.replace("{condition}", condition)
    rows = (
        row
        for number, _ in places
        for row in connection.execute(query, {**named, "number": number})
    )
    scores = (score for _, score in places)
    return [_fact(row, score) for row, score in zip(_first_of(rows), scores, strict=False)]


def _first_of(rows: Iterable[Row]) -> Iterator[Row]:
    """The rows of a recall: they end where their texts grow over a bound, after one at least."""
    size = 0
    for row in rows:
        yield row
        size += len(row["text"].encode())
        if size >= MAX_RECALL_BYTES:
            return


def _page(
    connection: Connection, owners: Owners, most: int, after: int
) -> tuple[list[Fact], str | None]:
    """It ends early where its texts grow over a bound; its first fact is always on it."""
    condition, named = where(owners, "f")
    page: list[Row] = []
    size = 0
    query = _PAGE.replace("{condition}", condition)
    for row in connection.execute(query, {**named, "after": after}):
        if len(page) == most or size >= MAX_PAGE_BYTES:
            return [_fact(each) for each in page], _cursor(page[-1]["number"])
        page.append(row)
        size += len(row["text"].encode())
    return [_fact(each) for each in page], None


def _fact(row: Row, score: float | None = None) -> Fact:
    return Fact(
        id=UUID(bytes=row["id"]),
        principal=row["principal"],
        agent=row["agent"],
        session=row["session"],
        text=row["text"],
        hash=row["hash"],
        created_at=moment(row["created_at"]),
        updated_at=moment(row["updated_at"]),
        score=score,
    )


def _cursor(number: int) -> str:
    return base64.urlsafe_b64encode(f"{number}".encode()).decode()


def _parse(cursor: str) -> int:
    try:
        decoded = base64.urlsafe_b64decode(cursor.encode()).decode("ascii")
        number = int(decoded) if decoded.isdecimal() and len(decoded) < 20 else -1
    except (ValueError, binascii.Error):
        raise InvalidCursor from None
    if not 0 < number <= _MAX_NUMBER:
        raise InvalidCursor
    return number
