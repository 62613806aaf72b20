"""Driving a storage without models: writing turns, doing work, and looking at every row."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import asyncpg

from kaos_memory.storage.postgres.storage import PostgresStorage
from kaos_memory.storage.protocol import Batch, WorkKind
from kaos_memory.tiers.memory import NewFact, NewTurn, Owner

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


async def commit(storage: PostgresStorage, batch: Batch) -> None:
    if batch.lease.kind is WorkKind.FOLD:
        covered = [f"{turn.position}" for turn in batch.turns]
        await storage.commit_fold(batch, " ".join([batch.digest.summary, *covered]).strip(), 3)
    else:
        await storage.commit_extraction(batch, facts_of(batch))


async def make_idle(admin_dsn: str) -> None:
    """Let all sessions be idle for long enough."""
    await fetch(admin_dsn, "UPDATE sessions SET last_turn_at = now() - interval '1 day'")
    await fetch(admin_dsn, "UPDATE work SET run_after = now() - interval '1 day' WHERE waiting")


async def work_off(storage: PostgresStorage) -> int:
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


async def account(admin_dsn: str, owner: Owner, schema: str = "kaos_memory") -> Account:
    connection = await asyncpg.connect(admin_dsn)
    try:
        await connection.execute(f"SET search_path TO {schema}, public")
        session = await connection.fetchrow(
            "SELECT * FROM sessions WHERE principal = $1 AND agent = $2 AND session = $3",
            owner.principal,
            owner.agent,
            owner.session,
        )
        assert session is not None
        rows = await connection.fetch(
            "SELECT position, tokens FROM turns WHERE session_ref = $1 ORDER BY position",
            session["id"],
        )
    finally:
        await connection.close()
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


async def fetch(admin_dsn: str, query: str, *arguments: object) -> list[asyncpg.Record]:
    """Ask as the superuser, whom row-level security does not bind."""
    connection = await asyncpg.connect(admin_dsn)
    try:
        await connection.execute("SET search_path TO kaos_memory, public")
        return await connection.fetch(query, *arguments)
    finally:
        await connection.close()


async def dump(admin_dsn: str, tables: Sequence[str] = TABLES) -> dict[str, list[str]]:
    """Every row of every table, as text."""
    return {
        table: sorted(row[0] for row in await fetch(admin_dsn, f"SELECT t::text FROM {table} t"))
        for table in tables
    }
