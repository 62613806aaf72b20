"""Floors: what the parts cost alone, measured in the same run on the same server."""

from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from itertools import count, cycle
from typing import Any

import asyncpg

from bench.conversation import Turn
from bench.load import Timing, repeat

_TABLE = """
    CREATE TABLE turns (
        session text NOT NULL, position integer NOT NULL, role text NOT NULL,
        content text NOT NULL, tokens integer NOT NULL,
        created_at timestamptz NOT NULL DEFAULT now(), PRIMARY KEY (session, position)
    )
"""
_INSERT = """
    INSERT INTO turns (session, position, role, content, tokens)
    SELECT $1, position, role, content, 60
    FROM unnest($2::integer[], $3::text[], $4::text[]) AS new (position, role, content)
"""
_WINDOW = """
    SELECT role, content FROM (
        SELECT position, role, content, sum(tokens) OVER (ORDER BY position DESC) AS running
        FROM turns WHERE session = $1
    ) summed
    WHERE running <= $2 ORDER BY position
"""
_BUDGET = 4_096
_SCRATCH = "written-"


@dataclass
class RawTables:
    """The same rows in a table without tenants, roles or locks, through asyncpg alone."""

    admin: asyncpg.Connection
    connections: Sequence[asyncpg.Connection]
    """One for each client: nobody waits for another's."""
    sessions: Sequence[str]
    _scratch: Iterator[int] = field(default_factory=count)

    async def insert(self, pair: Sequence[Turn], *, clients: int, most: int, secs: float) -> Timing:
        """Insert the two turns of a write durably, in one statement."""
        roles, contents = ([turn[at] for turn in pair] for at in range(2))

        def inserting(connection: asyncpg.Connection) -> Any:
            session, positions = f"{_SCRATCH}{next(self._scratch)}", count(1)

            async def once() -> object:
                two = [next(positions), next(positions)]
                return await connection.execute(_INSERT, session, two, roles, contents)

            return once

        work = [inserting(connection) for connection in self.connections[:clients]]
        timing = await repeat(work, most=most, seconds=secs)
        await self.admin.execute(f"DELETE FROM turns WHERE session LIKE '{_SCRATCH}%'")
        await self.admin.execute("VACUUM ANALYZE turns")
        return timing

    async def window(self, *, clients: int, most: int, secs: float) -> Timing:
        """Read a session's window within the token budget, in one statement."""

        def reading(connection: asyncpg.Connection, start: int) -> Any:
            sessions = cycle((*self.sessions[start:], *self.sessions[:start]))

            async def once() -> object:
                return await connection.fetch(_WINDOW, next(sessions), _BUDGET)

            return once

        work = [
            reading(connection, number % len(self.sessions))
            for number, connection in enumerate(self.connections[:clients])
        ]
        return await repeat(work, most=most, seconds=secs)


@asynccontextmanager
async def raw_tables(
    dsn: str, windows: Sequence[Sequence[Turn]], most_clients: int
) -> AsyncGenerator[RawTables]:
    """A filled table and a connection for each client."""
    async with AsyncExitStack() as stack:
        connections = [await asyncpg.connect(dsn) for _ in range(most_clients + 1)]
        for connection in connections:
            stack.push_async_callback(connection.close)
        admin = connections.pop()
        await admin.execute(_TABLE)
        sessions = [f"window-{number}" for number in range(len(windows))]
        for session, turns in zip(sessions, windows, strict=True):
            roles, contents = ([turn[at] for turn in turns] for at in range(2))
            positions = list(range(1, len(turns) + 1))
            await admin.execute(_INSERT, session, positions, roles, contents)
        await admin.execute("VACUUM ANALYZE turns")
        yield RawTables(admin, connections, sessions)
