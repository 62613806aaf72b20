"""Packed columns come out of PostgreSQL as they went in."""

import asyncpg

from kaos_memory.storage.postgres.packing import NO_DISTANCES, packed, terms_of_each, unpack
from kaos_memory.tiers import ranking

_FACTS = """
    VALUES
        (gen_random_uuid(), 'alice', 'a', 's1', md5('x'), 7, 7, 12, '\\x0100000002000000'::bytea,
         5::smallint, 'Ann', '2023-05-08 13:56+00'::timestamptz),
        (gen_random_uuid(), 'alice', 'a', 's1', md5('y'), 8, 8, 300000, '\\x03000000', 0, '',
         '1969-12-31 00:00+00'),
        (gen_random_uuid(), 'alice', 'a', 's2', md5('x'), 7, 9, 1, '', 7, 'Ann',
         '2023-05-08 23:59+00')
"""
_COLUMNS = """
    id, principal, agent, session, hash, first_position, last_position, words, terms, cues,
    speaker, said_at
"""


async def test_each_number_of_a_fact_keeps_its_place(empty_dsn: str):
    connection = await asyncpg.connect(empty_dsn)
    try:
        row = await connection.fetchrow(
            f"SELECT {packed('2000')}, {NO_DISTANCES}, NULL::boolean[] AS sampled "
            f"FROM ({_FACTS}) f ({_COLUMNS})"
        )
    finally:
        await connection.close()
    assert row is not None
    found = unpack(row)
    assert found.positions.tolist() == [7, 8, 0]  # the third is of several turns
    assert found.words.tolist() == [12, 262_143, 1]
    assert found.lengths.tolist() == [2, 1, 0]
    assert found.terms.tolist() == [1, 2, 3]
    assert found.cues.tolist() == [5, 0, 7]
    assert [found.names[speaker] for speaker in found.speakers] == ["Ann", "", "Ann"]
    assert found.days.tolist() == [19_485, -1, 19_485]
    first, second, third = found.conversations
    assert first == second != third
    first, second, third = found.texts
    assert first == third != second
    assert found.cosines is None


async def test_of_many_facts_each_has_its_first_terms(empty_dsn: str):
    connection = await asyncpg.connect(empty_dsn)
    try:
        row = await connection.fetchrow(
            f"SELECT {packed('1')}, {NO_DISTANCES}, NULL::boolean[] AS sampled "
            f"FROM ({_FACTS}) f ({_COLUMNS})"
        )
        counts = [0, 1, 1_000, 1_001, 10_000, 31_250, 10_000_000]
        each = [await connection.fetchval(f"SELECT {terms_of_each(str(at))}") for at in counts]
    finally:
        await connection.close()
    assert row is not None
    found = unpack(row)
    assert found.lengths.tolist() == [1, 1, 0]
    assert found.terms.tolist() == [1, 3]
    assert each == [2_000, 2_000, 2_000, 1_998, 200, 64, 64]
    assert each == [ranking.terms_of_each(count) for count in counts]
