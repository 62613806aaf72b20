"""Hybrid search over an owner's facts.

Up to a limit all facts of an owner are compared, so that recall is 1.0 by construction. Above it
these are: the nearest, several times as many as are asked for; what was stored just before and
after each of them; the newest, so that what was just said is found by its words too; and a sample,
which also stands for all of them in means and frequencies. The nearest come from the index, and
while it is being made from all of the owner's vectors. Where the query could not be embedded the
newest are compared, as many as the limit.
"""

import json
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from kaos_memory.settings import LongTerm
from kaos_memory.storage.local import vectors
from kaos_memory.storage.local.database import Connection, OnDatabase, Row, value, where
from kaos_memory.storage.local.facts import in_order
from kaos_memory.storage.local.index import FactIndex, generation
from kaos_memory.tiers.memory import Fact
from kaos_memory.tiers.ranking import Candidates, rank, terms_of_each
from kaos_memory.tiers.reach import Owners

_NEAREST_PER_RESULT: Final = 4
_LEAST_NEAREST: Final = 200
_MOST_NEAREST: Final = 3_200
"""Looked for where nearer ones are of the same few texts."""
_BESIDE: Final = 2
"""Facts before, and facts after, whose words count in part."""
_NEWEST: Final = 300
_SAMPLE: Final = 300
_DAY: Final = 86_400_000_000

_OWNED: Final = """
    SELECT count(*) FROM (SELECT 1 FROM facts f WHERE {condition} LIMIT :limit + 1)
"""
_LARGE: Final = "SELECT 1 FROM facts GROUP BY principal HAVING count(*) > :limit LIMIT 1"
_COUNTS: Final = """
    SELECT (SELECT count(*) FROM facts f WHERE {condition}), (SELECT count(*) FROM vectors)
"""
_COLUMNS: Final = """
    SELECT f.number, f.id, f.hash, f.principal, f.agent, f.session, f.first_position,
        f.last_position, f.speaker, f.said_at, f.words, f.cues,
        substr(f.terms, 1, 4 * :terms_of_each), v.embedding
    FROM facts f JOIN vectors v ON v.number = f.number
    WHERE {condition} ORDER BY f.number
"""
_HASHES: Final = "SELECT DISTINCT f.hash FROM facts f WHERE {condition}"
_AMONG: Final = "f.number IN (SELECT value FROM json_each(:numbers))"
_NEWEST_OF: Final = """
    SELECT f.number FROM facts f WHERE {condition} ORDER BY f.number DESC LIMIT :most
"""
_BESIDE_OF: Final = tuple(
    f"""
    SELECT f.number FROM facts f
    WHERE {{condition}} AND f.number {side} :number
        AND f.principal = (SELECT principal FROM facts WHERE number = :number)
    ORDER BY f.number {order} LIMIT {_BESIDE}
    """
    for side, order in (("<", "DESC"), (">", "ASC"))
)
# Numbers come in the order of time, which this scatters.
_SAMPLE_OF: Final = """
    SELECT f.number FROM facts f WHERE {condition}
    ORDER BY f.number * 2654435761 & 4294967295 LIMIT :most
"""


class Search(OnDatabase):
    """Finding the facts that answer a query."""

    _long_term: LongTerm
    _index: FactIndex

    async def search(
        self,
        owners: Owners,
        query: str,
        embedding: Sequence[float] | None,
        most: int,
        threshold: float | None,
    ) -> list[Fact]:
        """The facts that answer a query best, best first; identical texts count once.

        Without an embedding words alone decide, and there is no threshold. They end early where
        their texts grow over `MAX_RECALL_BYTES`.

        Raises:
            ModelError: the embedding has other dimensions than those of the store's facts.
        """
        weights, limit = self._long_term.ranking, self._long_term.exact_search_limit
        nearest: Sequence[int] | None = None
        if (
            embedding is not None
            and await self._db.read(lambda c: _owned(c, owners, limit)) > limit
        ):
            nearest = await self._nearest_texts(owners, embedding, most)

        def look(connection: Connection) -> list[Fact]:
            sample: Sequence[int] | None = None
            among = nearest
            owned = _owned(connection, owners, limit)
            if nearest is not None:
                sample = _numbers(connection, _SAMPLE_OF, owners, _SAMPLE)
                newest = _numbers(connection, _NEWEST_OF, owners, _NEWEST)
                beside = _beside(connection, owners, nearest)
                among = list({*nearest, *beside, *newest, *sample})
            elif owned > limit:
                among = _numbers(connection, _NEWEST_OF, owners, limit)
            each = terms_of_each(owned if among is None else len(among))
            rows = _rows(connection, _COLUMNS, owners, among, terms_of_each=each)
            if not rows:
                return []
            candidates = _candidates(rows, _cosines(connection, rows, embedding), sample)
            ranked = rank(candidates, query, weights, most, threshold)
            cosines = candidates.cosines
            return in_order(
                connection,
                owners,
                [
                    (
                        rows[at.index]["number"],
                        None if cosines is None else float(cosines[at.index]),
                    )
                    for at in ranked
                ],
            )

        return await self._db.read(look)

    async def index_large_owners(self) -> int:
        """Make the index where an owner has too many facts to compare. 1 where it was missing."""
        named = {"limit": self._long_term.exact_search_limit}
        large, made = await self._db.read(
            lambda c: (value(c, _LARGE, named), generation(c) is not None)
        )
        if large is None:
            return 0
        await self._index.up_to_date()
        return int(not made)

    async def _nearest_texts(
        self, owners: Owners, embedding: Sequence[float], most: int
    ) -> Sequence[int]:
        """The numbers of the nearest facts: more, where the first are of the same few texts."""
        wanted = max(_LEAST_NEAREST, _NEAREST_PER_RESULT * most)
        while True:
            found = await self._nearest(owners, embedding, wanted)
            hashes = await self._db.read(lambda c, found=found: _rows(c, _HASHES, owners, found))
            if 2 * len(hashes) < len(found):
                # An index finds its way badly among equal vectors, and would hide what is beside.
                return await self._db.read(
                    lambda c: vectors.nearest(c, owners, embedding, _MOST_NEAREST)
                )
            if len(hashes) >= most or len(found) < wanted or wanted >= _MOST_NEAREST:
                return found
            wanted = min(4 * wanted, _MOST_NEAREST)

    async def _nearest(
        self, owners: Owners, embedding: Sequence[float], wanted: int
    ) -> Sequence[int]:
        """The numbers of about as many nearest facts.

        The index knows no owners: of what it finds, the owners' share is theirs. So it is asked
        for twice as many as should do, and again for more until that is enough.
        """
        owned, total = await self._db.read(lambda c: _counts(c, owners))
        asked = 2 * wanted * total // max(1, owned)
        # Finding more than the owners have would take longer than to compare all of theirs.
        while asked < owned:
            found = await self._index.nearest(embedding, asked)
            if found is None:
                break
            theirs = await self._db.read(lambda c, found=found: _only_of(c, owners, found))
            if len(theirs) >= wanted:
                return theirs
            asked *= 2
        return await self._db.read(lambda c: vectors.nearest(c, owners, embedding, wanted))


def _owned(connection: Connection, owners: Owners, limit: int) -> int:
    """How many facts there are, counted to one more than the limit."""
    condition, named = where(owners, "f")
    query = _OWNED.replace("{condition}", condition)
    return value(connection, query, {**named, "limit": limit})


def _counts(connection: Connection, owners: Owners) -> tuple[int, int]:
    condition, named = where(owners, "f")
    return tuple(connection.execute(_COUNTS.replace("{condition}", condition), named).fetchone())


def _numbers(connection: Connection, query: str, owners: Owners, most: int) -> list[int]:
    condition, named = where(owners, "f")
    rows = connection.execute(query.replace("{condition}", condition), {**named, "most": most})
    return [number for (number,) in rows]


def _beside(connection: Connection, owners: Owners, numbers: Sequence[int]) -> list[int]:
    condition, named = where(owners, "f")
    return [
        beside
        for number in numbers
        for query in _BESIDE_OF
        for (beside,) in connection.execute(
            query.replace("{condition}", condition), {**named, "number": number}
        )
    ]


def _only_of(connection: Connection, owners: Owners, numbers: Sequence[int]) -> list[int]:
    query = "SELECT f.number FROM facts f WHERE {condition}"
    return [row["number"] for row in _rows(connection, query, owners, numbers)]


def _rows(
    connection: Connection,
    query: str,
    owners: Owners,
    among: Sequence[int] | None,
    **more: int,
) -> list[Row]:
    condition, named = where(owners, "f")
    values: dict[str, Any] = {**named, **more}
    if among is not None:
        condition, values = f"{condition} AND {_AMONG}", {**values, "numbers": json.dumps(among)}
    return connection.execute(query.replace("{condition}", condition), values).fetchall()


def _cosines(
    connection: Connection, rows: Sequence[Row], embedding: Sequence[float] | None
) -> vectors.Floats | None:
    if embedding is None:
        return None
    vectors.check_dims(connection, embedding)
    return vectors.cosines([row["embedding"] for row in rows], embedding)


def _candidates(
    rows: Sequence[Row], cosines: vectors.Floats | None, sample: Sequence[int] | None
) -> Candidates:
    (numbers, ids, hashes, principals, agents, sessions, first, last, speakers, said, words, cues,
     terms, _) = zip(*rows, strict=True)  # fmt: skip
    conversations: dict[tuple[str, str, str], int] = {}
    names: dict[str, int] = {}
    return Candidates(
        ids=np.frombuffer(b"".join(ids), "V16"),
        texts=np.frombuffer(bytes.fromhex("".join(hashes)), ">i8")[::2].astype(np.int64),
        conversations=np.array(
            [
                conversations.setdefault(whose, len(conversations))
                for whose in zip(principals, agents, sessions, strict=True)
            ]
        ),
        positions=np.where(np.array(first) == np.array(last), first, 0),
        lengths=np.array([len(each) // 4 for each in terms]),
        terms=np.frombuffer(b"".join(terms), "<i4"),
        words=np.array(words),
        cues=np.array(cues),
        speakers=np.array([names.setdefault(name, len(names)) for name in speakers]),
        names=list(names),
        days=np.array(said) // _DAY,
        made=np.array(numbers),
        cosines=cosines,
        sample=None if sample is None else np.isin(numbers, sample),
    )
