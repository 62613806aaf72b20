"""Hybrid search over an owner's facts.

Up to a limit all facts of an owner are compared: their columns are read in one statement, recall
is 1.0 by construction. Above it that would take too long, and these are compared:
- the nearest by an index (HNSW), several times as many as are asked for;
- what was stored just before and after each of these: the answer to a question that is near, say;
- the newest, so that what was just said is found by its words too;
- a random sample, which also stands for all of them in means and frequencies.
Words alone find an older fact only where it is among these. Where the query could not be embedded,
the newest are compared, as many as the limit. So they are where the owners are of several
principals, as for an admin: no index has their nearest in one place, and to compare a whole
store would take seconds.
"""

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final
from uuid import UUID

import asyncpg

from kaos_memory.contract import MAX_RECALL_BYTES
from kaos_memory.settings import LongTerm, Ranking
from kaos_memory.storage.postgres.database import Connection, OnDatabase, where
from kaos_memory.storage.postgres.facts import FACT, fact
from kaos_memory.storage.postgres.packing import (
    DISTANCES,
    NO_DISTANCES,
    packed,
    terms_of_each,
    unpack,
)
from kaos_memory.tiers.memory import Fact
from kaos_memory.tiers.ranking import Candidates, Ranked, rank
from kaos_memory.tiers.reach import Owners

_NEAREST_PER_RESULT: Final = 4
_LEAST_NEAREST: Final = 200
_MOST_NEAREST: Final = 3_200
"""Looked for where nearer ones are of the same few texts."""
_CROWDED: Final = 50_000
"""The newest facts, of which these are looked for: about 0.1 s at 384 dimensions."""
_BESIDE: Final = 2
"""Facts before, and facts after, whose words count in part."""
_NEWEST: Final = 300
_SAMPLE: Final = 300
_PART: Final = f"{1 + 2 * _BESIDE} * $1::bigint + {_NEWEST + _SAMPLE}"
"""Facts that are compared at most where not all are."""

# No more at once than helps: each takes a processor, and memory for all that it compares.
_ranking: Final = ThreadPoolExecutor(2, "ranking")

# Converted once, in a subquery: a plan for any question would do it for each row.
_QUESTION: Final = "(SELECT {embedding}::real[]::halfvec)"

# Whether they are few is asked and answered in the same statement: a trip less.
_COMPARE_ALL: Final = f"""
    WITH size AS MATERIALIZED (
        SELECT count(*) <= $1 AS few, {terms_of_each("count(*)")} AS terms_of_each FROM (
            SELECT FROM facts f WHERE {{condition}} LIMIT $1::bigint + 1
        ) counted
    )
    SELECT {packed("(SELECT terms_of_each FROM size)")}, {{distances}},
           NULL::boolean[] AS sampled, (SELECT few FROM size) AS few
    FROM facts f WHERE {{condition}} AND (SELECT few FROM size)
"""
# A fact may be in several parts: identical texts count once anyway, and a sample has it once.
_BY_DISTANCE: Final = "ORDER BY f.embedding <=> {question}"
_NEAREST: Final = f"SELECT * FROM facts f WHERE {{condition}} {_BY_DISTANCE} LIMIT $1"
# An index leads into the midst of many equal vectors, and not out again to what lies around.
_NEAREST_OF_CROWDED: Final = f"""
    SELECT DISTINCT ON (hash) * FROM (
        (SELECT * FROM facts f WHERE {{condition}} {_BY_DISTANCE} LIMIT {_LEAST_NEAREST})
        UNION ALL
        (SELECT * FROM (
            SELECT * FROM facts f WHERE {{condition}}
            ORDER BY f.created_at DESC, f.id DESC LIMIT {_CROWDED}
        ) f {_BY_DISTANCE} LIMIT $1)
    ) f
"""
_COMPARE: Final = f"""
    WITH nearest AS MATERIALIZED ({{nearest}})
    SELECT {packed(terms_of_each(_PART))}, {{distances}}, array_agg(f.sampled) AS sampled,
           (SELECT count(*) FROM (SELECT FROM nearest GROUP BY hash) texts) AS different
    FROM (
        SELECT *, false AS sampled FROM nearest
        UNION ALL
        SELECT beside.*, false FROM nearest n, LATERAL (
            (SELECT * FROM facts f
             WHERE {{condition}} AND f.principal = n.principal AND f.created_at < n.created_at
             ORDER BY f.created_at DESC, f.id DESC LIMIT {_BESIDE})
            UNION ALL
            (SELECT * FROM facts f
             WHERE {{condition}} AND f.principal = n.principal AND f.created_at > n.created_at
             ORDER BY f.created_at, f.id LIMIT {_BESIDE})
        ) beside
        UNION ALL
        (SELECT *, false FROM facts f WHERE {{condition}}
         ORDER BY f.created_at DESC, f.id DESC LIMIT {_NEWEST})
        UNION ALL
        (SELECT *, true FROM facts f WHERE {{condition}}
         ORDER BY f.id LIMIT {_SAMPLE})  -- ids are random
    ) f
"""
_COMPARE_PART: Final = _COMPARE.replace("{nearest}", _NEAREST)
_COMPARE_CROWDED: Final = _COMPARE.replace("{nearest}", _NEAREST_OF_CROWDED)
_COMPARE_NEWEST: Final = f"""
    SELECT {packed(terms_of_each("$1::bigint"))}, {{distances}}, NULL::boolean[] AS sampled FROM (
        SELECT * FROM facts f WHERE {{condition}} ORDER BY {{newest}} LIMIT $1
    ) f
"""
_NEWEST_OF_ONE: Final = "f.created_at DESC, f.id DESC"
_NEWEST_OF_MANY: Final = "f.updated_at DESC"
"""The only order that an index has over all principals: when a fact was last said."""
# The first is always there; large texts beyond the bound are not even read.
_FACTS: Final = f"""
    SELECT * FROM (
        SELECT {FACT}, c.score, c.place, sum(octet_length(f.text)) OVER (ORDER BY c.place)
            - octet_length(f.text) AS before
        FROM unnest($1::text[], $2::uuid[], $3::float8[])
            WITH ORDINALITY AS c (principal, id, score, place)
        JOIN facts f ON f.principal = c.principal AND f.id = c.id
        WHERE {{condition}}
    ) f
    WHERE before < $4 ORDER BY place
"""
# Other rows than the owner's are passed over by scanning on. Without sorts, the order that the
# nearest are wanted in can come from their index only; a plan for any owner could not rely on it,
# because not every partition has one.
_BY_INDEX: Final = """
    SELECT set_config('hnsw.iterative_scan', 'relaxed_order', true),
           set_config('hnsw.ef_search', '400', true),
           set_config('hnsw.max_scan_tuples', '100000', true),
           set_config('hnsw.scan_mem_multiplier', '8', true),
           set_config('enable_sort', 'off', true),
           set_config('plan_cache_mode', 'force_custom_plan', true)
"""


class Search(OnDatabase):
    """Finding the facts that answer a query."""

    _long_term: LongTerm

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
        """
        async with self._db.read(owners) as connection:
            found = await self._candidates(connection, owners, embedding, most)
            if found["ids"] is None:
                return []
            # Milliseconds of arithmetic, in which other requests need not wait.
            candidates, ranked = await asyncio.get_running_loop().run_in_executor(
                _ranking, _ranked, found, query, self._long_term.ranking, most, threshold
            )
            places = [place.index for place in ranked]
            cosines = candidates.cosines
            condition, arguments = where(owners, "f", first=5)
            rows = await connection.fetch(
                _FACTS.replace("{condition}", condition),
                [found["principals"][place] for place in places],
                [UUID(bytes=candidates.ids[place].tobytes()) for place in places],
                [None if cosines is None else float(cosines[place]) for place in places],
                MAX_RECALL_BYTES,
                *arguments,
            )
        return [fact(row, score=row["score"]) for row in rows]

    async def _candidates(
        self,
        connection: Connection,
        owners: Owners,
        embedding: Sequence[float] | None,
        most: int,
    ) -> asyncpg.Record:
        limit = self._long_term.exact_search_limit
        found = await _fetch(connection, _COMPARE_ALL, owners, embedding, limit)
        if found["few"]:
            return found
        if embedding is None or owners.principal is None:
            newest = _NEWEST_OF_MANY if owners.principal is None else _NEWEST_OF_ONE
            compare_newest = _COMPARE_NEWEST.replace("{newest}", newest)
            return await _fetch(connection, compare_newest, owners, embedding, limit)
        await connection.execute(_BY_INDEX)
        nearest = max(_LEAST_NEAREST, _NEAREST_PER_RESULT * most)
        found = await _fetch(connection, _COMPARE_PART, owners, embedding, nearest)
        if found["different"] >= most:
            return found
        return await _fetch(connection, _COMPARE_CROWDED, owners, embedding, _MOST_NEAREST)


def _ranked(
    found: asyncpg.Record, query: str, weights: Ranking, most: int, threshold: float | None
) -> tuple[Candidates, list[Ranked]]:
    candidates = unpack(found)
    return candidates, rank(candidates, query, weights, most, threshold)


async def _fetch(
    connection: Connection,
    statement: str,
    owners: Owners,
    embedding: Sequence[float] | None,
    count: int,
) -> asyncpg.Record:
    query, arguments = bound(statement, owners, embedding)
    rows = await connection.fetch(query, count, *arguments)
    return rows[0]  # aggregates without groups are one row, whatever there is


def bound(
    statement: str, owners: Owners, embedding: Sequence[float] | None
) -> tuple[str, list[Any]]:
    """A statement for these owners, and its arguments from the second on."""
    condition, named = where(owners, "f", first=2)
    statement = statement.replace("{condition}", condition)
    if embedding is None:
        return statement.replace("{distances}", NO_DISTANCES), [*named]
    question = _QUESTION.replace("{embedding}", f"${2 + len(named)}")
    statement = statement.replace("{distances}", DISTANCES).replace("{question}", question)
    return statement, [*named, embedding]
