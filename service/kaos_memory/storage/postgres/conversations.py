"""The conversational tiers in PostgreSQL: sessions, turns, digests."""

from collections.abc import Sequence

import asyncpg

from kaos_memory.storage.postgres.database import Connection, OnDatabase, Role, where
from kaos_memory.storage.protocol import WorkKind
from kaos_memory.tiers.memory import Conversation, NewTurn, Owner, Turn
from kaos_memory.tiers.reach import Owners
from kaos_memory.tiers.window import Compaction, Marks

MARKS = "evicted_through, folded_through, extracted_through"
TURN = "position, role, content, tokens, infer, created_at"

_APPEND = f"""
    WITH session AS (
        INSERT INTO sessions AS s
            (principal, agent, session, last_position, window_tokens, window_turns, last_turn_at)
        VALUES ($1, $2, $3, $4, $5, $4, now())
        ON CONFLICT (principal, agent, session) DO UPDATE SET
            last_position = s.last_position + $4,
            window_tokens = s.window_tokens + $5,
            window_turns = s.window_turns + $4,
            last_turn_at = now()
        RETURNING id, last_position, window_tokens, window_turns, {MARKS}
    ), added AS (
        INSERT INTO turns (session_ref, position, principal, agent, role, content, tokens, infer)
        SELECT session.id, session.last_position - $4 + new.at, $1, $2,
               new.role, new.content, new.tokens, new.infer
        FROM session, unnest($6::text[], $7::text[], $8::integer[], $9::boolean[])
            WITH ORDINALITY AS new (role, content, tokens, infer, at)
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
_MAKE_DUE = """
    INSERT INTO work (session_ref, kind, principal, agent)
    SELECT $1, kind, $2, $3 FROM unnest($4::text[]) AS kind
    ON CONFLICT DO NOTHING
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
               array_agg(created_at ORDER BY position) AS times
        FROM (
            SELECT *, sum(tokens) OVER (ORDER BY position DESC) AS running FROM (
                SELECT position, role, content, tokens, created_at FROM turns t
                WHERE t.session_ref = s.id AND t.position > s.folded_through
                ORDER BY position DESC LIMIT $1
            ) newest
        ) summed
        WHERE running <= $2 OR position = s.last_position
    ) latest ON true
    WHERE {condition}
    ORDER BY s.last_turn_at DESC LIMIT 100
"""


def marks_of(session: asyncpg.Record) -> Marks:
    """Where a session's marks stand, from a row that has their columns."""
    return Marks(*(session[column] for column in MARKS.split(", ")))


class Conversations(OnDatabase):
    """Appending turns, and reading a session back."""

    _compaction: Compaction

    async def append(self, owner: Owner, turns: Sequence[NewTurn]) -> bool:
        """Store turns, compact where due. True where background work became due with it."""
        async with self._db.change(owner.principal, owner.agent, Role.REQUEST) as connection:
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
            )
            if session is None or not self._compaction.due(
                tokens=session["window_tokens"], turns=session["window_turns"]
            ):
                return False
            return await self._compact(connection, owner, session["id"], marks_of(session))

    async def _compact(
        self, connection: Connection, owner: Owner, session_ref: int, marks: Marks
    ) -> bool:
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
        kinds = [
            kind
            for kind, wanted in (
                (WorkKind.FOLD, self._compaction.fold),
                (WorkKind.EXTRACT, self._compaction.extract),
            )
            if wanted
        ]
        if kinds:
            await connection.execute(_MAKE_DUE, session_ref, owner.principal, owner.agent, kinds)
        return bool(kinds)

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
                    Turn(position, role, content, tokens, infer=True, created_at=created_at)
                    for position, role, content, tokens, created_at in zip(
                        *(row[f] for f in ("positions", "roles", "contents", "tokens", "times")),
                        strict=True,
                    )
                ],
            )
            for row in rows
        ]
