"""Driving a storage without models: writing turns, doing work, and looking at every row."""

import re
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import asyncpg

from kaos_memory.storage.local.database import now
from kaos_memory.storage.protocol import Batch, Storage, WorkKind
from kaos_memory.tiers.memory import NewFact, NewTurn, Owner

from ..conftest import Where

LEASE = timedelta(seconds=60)
ALICE = Owner("alice", "kaos://agent/ns/helper", "s-1")
BOB = Owner("bob", "kaos://agent/ns/helper", "s-1")
TABLES = ("sessions", "turns", "digests", "facts", "work", "epochs", "erasures", "meta")


def turns(*contents: str, tokens: int = 20, infer: bool = True) -> list[NewTurn]:
    return [NewTurn("user", content, tokens, infer) for content in contents]


def embedding(seed: int) -> list[float]:
    """A vector that points mostly along one axis."""
    return [1.0 if axis == seed % 8 else 0.01 * axis for axis in range(8)]


def new_fact(text: str, vector: Sequence[float] | None = None) -> NewFact:
    """A fact that stands for the first turn of its session."""
    return NewFact(text, vector or embedding(0), 1, 1, datetime(2024, 5, 1, tzinfo=UTC))


def facts_of(batch: Batch) -> list[NewFact]:
    """One fact for each turn, traceable to it."""
    return [
        NewFact(
            f"{batch.owner.principal} said {turn.content}",
            embedding(turn.position),
            turn.position,
            turn.position,
            turn.said_at,
        )
        for turn in batch.turns
    ]


async def commit(storage: Storage, batch: Batch) -> None:
    if batch.lease.kind is WorkKind.FOLD:
        covered = [f"{turn.position}" for turn in batch.turns]
        await storage.commit_fold(batch, " ".join([batch.digest.summary, *covered]).strip(), 3)
    else:
        await storage.commit_extraction(batch, facts_of(batch))


async def make_idle(where: Where) -> None:
    """Let all sessions be idle for long enough."""
    await fetch(where, "UPDATE sessions SET last_turn_at = now() - interval '1 day'")
    await fetch(where, "UPDATE work SET run_after = now() - interval '1 day' WHERE waiting")


async def work_off(storage: Storage) -> int:
    """Do all work that is due. Returns how many pieces there were."""
    done = 0
    while (lease := await storage.claim(LEASE)) is not None:
        batch = await storage.load(lease)
        if batch is not None:
            await commit(storage, batch)
        done += 1
    return done


@dataclass
class Account:
    """Where each turn of one session is, and what is known of it."""

    window: list[int]
    pending: list[int]
    digested: list[int]
    extracted: list[int]
    rows: list[int]
    last: int
    counted: tuple[int, int]
    """The window's turns and tokens as the session counts them."""
    real: tuple[int, int]
    """The same as its rows say."""

    def check(self) -> None:
        """Each turn is in exactly one place, in order, and no row is kept or lost wrongly."""
        assert self.digested + self.pending + self.window == list(range(1, self.last + 1))
        assert self.extracted == list(range(1, len(self.extracted) + 1))
        gone = min(len(self.digested), len(self.extracted))
        assert self.rows == list(range(gone + 1, self.last + 1))
        assert self.counted == self.real


async def account(where: Where, owner: Owner) -> Account:
    joined = await fetch(
        where,
        "SELECT s.*, t.position, t.tokens "
        "FROM sessions s LEFT JOIN turns t ON t.session_ref = s.id "
        "WHERE s.principal = $1 AND s.agent = $2 AND s.session = $3 ORDER BY t.position",
        owner.principal,
        owner.agent,
        owner.session,
    )
    session, rows = joined[0], [row for row in joined if row["position"] is not None]
    last, folded = session["last_position"], session["folded_through"]
    evicted, extracted = session["evicted_through"], session["extracted_through"]
    return Account(
        window=list(range(evicted + 1, last + 1)),
        pending=list(range(folded + 1, evicted + 1)),
        digested=list(range(1, folded + 1)),
        extracted=list(range(1, extracted + 1)),
        rows=[row["position"] for row in rows],
        last=last,
        counted=(session["window_turns"], session["window_tokens"]),
        real=(
            sum(row["position"] > evicted for row in rows),
            sum(row["tokens"] for row in rows if row["position"] > evicted),
        ),
    )


async def fetch(where: Where, query: str, *arguments: Any) -> Sequence[Any]:
    """Ask past all that guards a storage; row-level security does not bind the superuser."""
    if isinstance(where, Path):
        return _fetch_locally(where, query, arguments)
    connection = await asyncpg.connect(where)
    try:
        await connection.execute("SET search_path TO kaos_memory, public")
        return await connection.fetch(query, *arguments)
    finally:
        await connection.close()


async def dump(where: Where, tables: Sequence[str] = TABLES) -> dict[str, list[str]]:
    """Every row of every table, as text."""
    rows = {table: await fetch(where, f"SELECT * FROM {table}") for table in tables}
    return {table: sorted(str(tuple(row)) for row in found) for table, found in rows.items()}


_INTERVAL = re.compile(r"interval '(\d+) (second|minute|hour|day)s?'")


def _fetch_locally(path: Path, query: str, arguments: Sequence[Any]) -> Sequence[Any]:
    """The same words for SQLite, where times are microseconds."""

    def microseconds(found: re.Match[str]) -> str:
        length = timedelta(**{f"{found[2]}s": int(found[1])})
        return str(length // timedelta(microseconds=1))

    with closing(sqlite3.connect(path, timeout=10)) as connection, connection:
        connection.create_function("now", 0, now)
        connection.create_function("gen_random_uuid", 0, lambda: uuid4().bytes)
        connection.row_factory = sqlite3.Row
        return connection.execute(
            _INTERVAL.sub(microseconds, re.sub(r"\$(\d)", r"?\1", query)), arguments
        ).fetchall()
