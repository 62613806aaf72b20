"""Facts put into a database directly, many at once, as a store would have written them."""

import sqlite3
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import asyncpg
import numpy as np
import numpy.typing as npt

from kaos_memory.storage.local import new_facts, vectors
from kaos_memory.storage.prepared_facts import prepare
from kaos_memory.tiers.lexical import cues, terms, words
from kaos_memory.tiers.memory import NewFact, Owner, fact_hash

from ..conftest import Where

_COLUMNS = """principal, agent, session, text, hash, embedding, first_position, last_position,
    speaker, said_at, terms, words, cues"""
_START = datetime(2024, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Stored:
    """A fact as its row shall be; one turn of its session, unless its position is 0."""

    text: str
    embedding: Sequence[float] | npt.NDArray[np.floating]
    principal: str = "alice"
    agent: str = "helper"
    session: str = "s-1"
    position: int = 0
    speaker: str = ""


async def store(where: Where, facts: Iterable[Stored]) -> None:
    """Add facts, each a second newer than the one before."""
    if isinstance(where, Path):
        _store_locally(where, facts)
        return
    connection = await asyncpg.connect(where)
    try:
        await connection.execute("""
            SET search_path TO kaos_memory, public;
            CREATE TEMPORARY TABLE added (
                place integer, principal text, agent text, session text, text text, hash text,
                embedding text, first_position integer, last_position integer, speaker text,
                said_at timestamptz, terms bytea, words integer, cues smallint
            );
        """)
        await connection.copy_records_to_table("added", records=map(_row, *_numbered(facts)))
        await connection.execute(f"""
            INSERT INTO facts ({_COLUMNS}, model, prompt_hash, created_at)
            SELECT {_COLUMNS.replace("embedding", "embedding::halfvec")}, 'm', 'p', said_at
            FROM added ORDER BY place;
            ANALYZE facts;
        """)
    finally:
        await connection.close()


def _store_locally(path: Path, facts: Iterable[Stored]) -> None:
    with closing(sqlite3.connect(path, timeout=10)) as connection, connection:
        connection.row_factory = sqlite3.Row
        for place, fact in enumerate(facts):
            new = NewFact(
                fact.text,
                [float(number) for number in fact.embedding],
                fact.position or 1,
                fact.position or 2,
                _START + timedelta(seconds=place),
                fact.speaker,
            )
            owner = Owner(fact.principal, fact.agent, fact.session)
            new_facts.add(connection, owner, ("m", "p"), prepare([new], vectors.encode))


def _numbered(facts: Iterable[Stored]) -> tuple[Iterable[int], Iterable[Stored]]:
    every = list(facts)
    return range(len(every)), every


def _row(place: int, fact: Stored) -> tuple[object, ...]:
    vector = "[" + ",".join(f"{number:.6g}" for number in fact.embedding) + "]"
    return (
        place,
        fact.principal,
        fact.agent,
        fact.session,
        fact.text,
        fact_hash(fact.text),
        vector,
        fact.position or 1,
        fact.position or 2,
        fact.speaker,
        _START + timedelta(seconds=place),
        terms(fact.text),
        words(fact.text),
        int(cues(fact.text)),
    )
