"""The conversational tiers in PostgreSQL: sessions, turns, digests."""

from collections.abc import Collection, Sequence
from datetime import timedelta

import asyncpg

from kaos_memory.storage.postgres import idempotency, time_limits
from kaos_memory.storage.postgres.database import (
    Connection,
    OnDatabase,
    Role,
    erased_subject,
    where,
)
from kaos_memory.storage.protocol import Appended, IdempotencyKey, WorkKind
from kaos_memory.tiers.memory import Conversation, NewTurn, Owner, Turn
from kaos_memory.tiers.reach import Owners
from kaos_memory.tiers.window import Compaction, Marks

MARKS = "evicted_through, folded_through, extracted_through, closed_through"
TURN = "position, role, content, tokens, infer, created_at, said_at"

# With its first turn a session gets the work that extracts it once it is idle, if not before;
# where it waits for longer than sessions wait now, it waits for less.
# The time is read under the transaction's locks: it is later than any erasure that came first.
_APPEND = f"""
    WITH session AS (
        INSERT INTO sessions AS s
            (principal, agent, session, last_position, window_tokens, window_turns, began_at,
             last_turn_at)
        SELECT $1, $2, $3, $4, $5, $4, time, time FROM clock_timestamp() AS time
        ON CONFLICT (principal, agent, session) DO UPDATE SET
            last_position = s.last_position + $4,
            window_tokens = s.window_tokens + $5,
            window_turns = s.window_turns + $4,
            last_turn_at = excluded.last_turn_at
        RETURNING id, last_position, window_tokens, window_turns, last_turn_at, {MARKS}
    ), added AS (
        INSERT INTO turns
            (session_ref, position, principal, agent, role, content, tokens, infer, created_at,
             said_at)
        SELECT session.id, session.last_position - $4 + new.at, $1, $2,
               new.role, new.content, new.tokens, new.infer, session.last_turn_at,
               coalesce(new.said_at, session.last_turn_at)
        FROM session, unnest($6::text[], $7::text[], $8::integer[], $9::boolean[],
                             $10::timestamptz[])
            WITH ORDINALITY AS new (role, content, tokens, infer, said_at, at)
    ), awaited AS (
        INSERT INTO work (session_ref, kind, principal, agent, waiting, run_after)
        SELECT id, 'extract', $1, $2, true, last_turn_at + $11 FROM session WHERE $12
        ON CONFLICT DO NOTHING
    ), hastened AS (
        UPDATE work SET run_after = session.last_turn_at + $11 FROM session
        WHERE $12 AND session_ref = session.id AND kind = 'extract' AND waiting
            AND run_after > session.last_turn_at + $11
    )
    SELECT * FROM session
"""
_WINDOW_TOKENS = """
    SELECT position, tokens FROM turns
    WHERE session_ref = $1 AND position > $2 ORDER BY position DESC
"""
_COMPACT = """
    UPDATE sessions SET evicted_through = $2, folded_through = $3, extracted_through = $4,
        window_tokens = $5, window_turns = $6
    WHERE id = $1
"""
# Whether any of it will be done: not if all of it is dead.
_MAKE_DUE = """
    WITH made AS (
        INSERT INTO work (session_ref, kind, principal, agent)
        SELECT $1, kind, $2, $3 FROM unnest($4::text[]) AS kind
        ON CONFLICT (session_ref, kind) DO UPDATE SET waiting = false, run_after = now()
        WHERE work.waiting
        RETURNING 1
    )
    SELECT EXISTS (TABLE made) OR EXISTS (
        SELECT 1 FROM work WHERE session_ref = $1 AND kind = ANY($4) AND NOT dead
    )
"""
_CLOSE = """
    UPDATE sessions SET closed_through = last_position
    WHERE id = $1 AND extracted_through < last_position
"""
_CLOSE_ALL = """
    WITH closed AS (
        UPDATE sessions s SET closed_through = last_position
        WHERE extracted_through < last_position AND {condition}
        RETURNING id, principal, agent
    ), made AS (
        INSERT INTO work (session_ref, kind, principal, agent)
        SELECT id, 'extract', principal, agent FROM closed
        ON CONFLICT (session_ref, kind) DO UPDATE SET waiting = false, run_after = now()
        WHERE work.waiting
        RETURNING 1
    )
    SELECT EXISTS (TABLE made) OR EXISTS (
        SELECT 1 FROM closed JOIN work w ON w.session_ref = closed.id
        WHERE w.kind = 'extract' AND NOT w.dead
    )
"""
DROP_GONE = "DELETE FROM turns WHERE session_ref = $1 AND position <= $2"

# Newest first within the budget; the last turn always. `most` bounds the scan while a digest
# is overdue and pending turns pile up.
_CONVERSATIONS = """
    SELECT s.principal, s.agent, s.session, digest.summary, latest.*
    FROM sessions s
    LEFT JOIN LATERAL (
        SELECT summary FROM digests d WHERE d.session_ref = s.id ORDER BY version DESC LIMIT 1
    ) digest ON true
    LEFT JOIN LATERAL (
        SELECT array_agg(position ORDER BY position) AS positions,
               array_agg(role ORDER BY position) AS roles,
               array_agg(content ORDER BY position) AS contents,
               array_agg(tokens ORDER BY position) AS tokens,
               array_agg(created_at ORDER BY position) AS times,
               array_agg(said_at ORDER BY position) AS said
        FROM (
            SELECT *, sum(tokens) OVER (ORDER BY position DESC) AS running FROM (
                SELECT position, role, content, tokens, created_at, said_at FROM turns t
                WHERE t.session_ref = s.id AND t.position > s.folded_through
                ORDER BY position DESC LIMIT $1
            ) newest
        ) summed
        WHERE running <= $2 OR position = s.last_position
    ) latest ON true
    WHERE {condition}
    ORDER BY s.last_turn_at DESC LIMIT 100
"""


_LATEST = ("positions", "roles", "contents", "tokens", "times", "said")


def marks_of(session: asyncpg.Record) -> Marks:
    """Where a session's marks stand, from a row that has their columns."""
    return Marks(*(session[column] for column in MARKS.split(", ")))


class Conversations(OnDatabase):
    """Appending turns, and reading a session back."""

    _compaction: Compaction
    _idle_after: timedelta
    """Without a new turn for so long a session is extracted."""

    async def append(
        self, owner: Owner, turns: Sequence[NewTurn], key: IdempotencyKey | None = None
    ) -> Appended:
        """Store turns, compact where due. Raises `IdempotencyConflict`."""
        async with self._db.change(owner.principal, owner.agent, Role.REQUEST) as connection:
            if key is None:
                return Appended(await self._append(connection, owner, turns))
            hashes = self._db.schema.erasure_key
            use = idempotency.Use(hashes.write(owner, key.name), hashes.content(owner, turns))
            first = await idempotency.first_answer(connection, use, key.valid_for)
            if first is not None:
                return first
            scheduled = await self._append(connection, owner, turns)
            if scheduled:
                await idempotency.note_scheduled(connection, use)
            return Appended(scheduled)

    async def _append(self, connection: Connection, owner: Owner, turns: Sequence[NewTurn]) -> bool:
        """Store turns in a transaction. True where background work became due with it."""
        session = await connection.fetchrow(
            _APPEND,
            owner.principal,
            owner.agent,
            owner.session,
            len(turns),
            sum(turn.tokens for turn in turns),
            [turn.role for turn in turns],
            [turn.content for turn in turns],
            [turn.tokens for turn in turns],
            [turn.infer for turn in turns],
            [turn.said_at for turn in turns],
            self._idle_after,
            self._compaction.extract,
        )
        assert session is not None  # noqa: S101 - RETURNING after INSERT
        due: set[WorkKind] = set()
        if self._compaction.extract and not all(turn.infer for turn in turns):
            # What is a fact already needs no context to become one.
            await connection.execute(_CLOSE, session["id"])
            due.add(WorkKind.EXTRACT)
        if self._compaction.due(
            tokens=session["window_tokens"], turns=session["window_turns"]
        ) and await self._compact(connection, session["id"], marks_of(session)):
            due |= self._wanted
        if not due:
            return False
        return await _make_due(connection, session["id"], owner.principal, owner.agent, due)

    @property
    def _wanted(self) -> set[WorkKind]:
        """The work that what leaves a window is due for."""
        tiers = (
            (WorkKind.FOLD, self._compaction.fold),
            (WorkKind.EXTRACT, self._compaction.extract),
        )
        return {kind for kind, wanted in tiers if wanted}

    async def _compact(self, connection: Connection, session_ref: int, marks: Marks) -> bool:
        """Move what is too much out of the window. False where nothing can leave it."""
        window = await connection.fetch(_WINDOW_TOKENS, session_ref, marks.evicted_through)
        kept = self._compaction.kept([row["tokens"] for row in window])
        if kept == len(window):
            return False
        marks = marks.evict(window[kept]["position"], self._compaction)
        await connection.execute(
            _COMPACT,
            session_ref,
            marks.evicted_through,
            marks.folded_through,
            marks.extracted_through,
            sum(row["tokens"] for row in window[:kept]),
            kept,
        )
        await connection.execute(DROP_GONE, session_ref, marks.gone_through)
        return True

    async def close_sessions(self, owners: Owners) -> bool:
        """Make extraction due for all turns of these sessions. True where any was left."""
        if not self._compaction.extract:
            return False
        condition, arguments = where(owners, "s")
        # As an erasure of the same owners would, so that one of them goes either before or after;
        # in one transaction, however many owners an admin's session has.
        alone = self._db.erasure(owners, erased_subject(owners), seconds=time_limits.CHANGE)
        async with alone as connection:
            return await connection.fetchval(
                _CLOSE_ALL.replace("{condition}", condition), *arguments
            )

    async def conversations(self, owners: Owners, budget: int) -> list[Conversation]:
        """The conversations of a session, each with its newest turns within a token budget."""
        condition, arguments = where(owners, "s", first=3)
        async with self._db.read(owners) as connection:
            rows = await connection.fetch(
                _CONVERSATIONS.replace("{condition}", condition),
                self._compaction.hard_event_cap,
                budget,
                *arguments,
            )
        return [
            Conversation(
                principal=row["principal"],
                agent=row["agent"],
                session=row["session"],
                digest=row["summary"] or "",
                turns=[
                    Turn(position, role, content, tokens, True, created_at, said_at)
                    for position, role, content, tokens, created_at, said_at in zip(
                        *(row[column] for column in _LATEST), strict=True
                    )
                ],
            )
            for row in rows
        ]


async def _make_due(
    connection: Connection,
    session_ref: int,
    principal: str,
    agent: str,
    kinds: Collection[WorkKind],
) -> bool:
    """Make work due. False where all of it is dead."""
    return await connection.fetchval(_MAKE_DUE, session_ref, principal, agent, list(kinds))
