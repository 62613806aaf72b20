"""The conversational tiers in SQLite: sessions, turns, digests."""

from collections.abc import Collection, Sequence
from datetime import timedelta
from typing import Any

from kaos_memory.storage.erasure_key import ErasureKey
from kaos_memory.storage.local.database import (
    Connection,
    OnDatabase,
    Row,
    micros,
    moment,
    now,
    one,
    span,
    where,
)
from kaos_memory.storage.local.idempotency import Use
from kaos_memory.storage.protocol import Appended, IdempotencyKey, WorkKind
from kaos_memory.tiers.memory import Conversation, NewTurn, Owner, Turn
from kaos_memory.tiers.reach import Owners
from kaos_memory.tiers.window import Compaction, Marks

MARKS = "evicted_through, folded_through, extracted_through, closed_through"
TURN = "position, role, content, tokens, infer, created_at, said_at"

_GROW = f"""
    INSERT INTO sessions
        (principal, agent, session, last_position, window_tokens, window_turns, began_at,
         last_turn_at)
    VALUES (:principal, :agent, :session, :count, :tokens, :count, :now, :now)
    ON CONFLICT (principal, agent, session) DO UPDATE SET
        last_position = last_position + :count,
        window_tokens = window_tokens + :tokens,
        window_turns = window_turns + :count,
        last_turn_at = :now
    RETURNING id, last_position, window_tokens, window_turns, {MARKS}
"""
_ADD_TURN = f"""
    INSERT INTO turns (session_ref, {TURN})
    VALUES (:session_ref, :position, :role, :content, :tokens, :infer, :now, :said_at)
"""
# With its first turn a session gets the work that extracts it once it is idle, if not before;
# where it waits for longer than sessions wait now, it waits for less.
_AWAIT = """
    INSERT INTO work (session_ref, kind, principal, agent, waiting, run_after)
    VALUES (:session_ref, 'extract', :principal, :agent, 1, :run_after)
    ON CONFLICT DO UPDATE SET run_after = :run_after WHERE waiting AND run_after > :run_after
"""
# What was written while no facts were extracted lacks that work.
_AWAIT_ALL = """
    INSERT INTO work (session_ref, kind, principal, agent, waiting, run_after)
    SELECT id, 'extract', principal, agent, 1, last_turn_at + :idle_after FROM sessions
    WHERE extracted_through < last_position
    ON CONFLICT DO NOTHING
"""
_WINDOW_TOKENS = """
    SELECT position, tokens FROM turns
    WHERE session_ref = :session_ref AND position > :evicted_through ORDER BY position DESC
"""
_COMPACT = """
    UPDATE sessions SET evicted_through = :evicted_through, folded_through = :folded_through,
        extracted_through = :extracted_through, window_tokens = :tokens, window_turns = :turns
    WHERE id = :session_ref
"""
_MAKE_DUE = """
    INSERT INTO work (session_ref, kind, principal, agent, run_after)
    SELECT id, :kind, principal, agent, :now FROM sessions WHERE id = :session_ref
    ON CONFLICT (session_ref, kind) DO UPDATE SET waiting = 0, run_after = :now WHERE waiting
"""
_LIVES = "SELECT 1 FROM work WHERE session_ref = :session_ref AND kind = :kind AND NOT dead"
_CLOSE = """
    UPDATE sessions SET closed_through = last_position
    WHERE id = :session_ref AND extracted_through < last_position
"""
_CLOSE_ALL = """
    UPDATE sessions AS s SET closed_through = last_position
    WHERE extracted_through < last_position AND {condition}
"""
_MAKE_ALL_DUE = """
    INSERT INTO work (session_ref, kind, principal, agent, run_after)
    SELECT id, 'extract', principal, agent, :now FROM sessions s
    WHERE extracted_through < last_position AND {condition}
    ON CONFLICT (session_ref, kind) DO UPDATE SET waiting = 0, run_after = :now WHERE waiting
"""
_ANY_LIVES = """
    SELECT 1 FROM sessions s JOIN work w ON w.session_ref = s.id
    WHERE w.kind = 'extract' AND NOT w.dead AND extracted_through < last_position AND {condition}
    LIMIT 1
"""
_DROP_GONE = "DELETE FROM turns WHERE session_ref = :session_ref AND position <= :through"
_CONVERSATIONS = """
    SELECT s.id, s.principal, s.agent, s.session, s.folded_through, digest.summary
    FROM sessions s
    LEFT JOIN digests digest ON digest.session_ref = s.id AND digest.version = s.digest_version
    WHERE {condition}
    ORDER BY s.last_turn_at DESC, s.id DESC LIMIT 100
"""
# `most` bounds the scan while a digest is overdue and pending turns pile up.
_LATEST = f"""
    SELECT {TURN} FROM turns WHERE session_ref = :session_ref AND position > :folded_through
    ORDER BY position DESC LIMIT :most
"""


def marks_of(session: Row) -> Marks:
    """Where a session's marks stand, from a row that has their columns."""
    return Marks(*(session[column] for column in MARKS.split(", ")))


def turn_of(row: Row) -> Turn:
    """A turn, from a row that has its columns."""
    position, role, content, tokens, infer, created_at, said_at = row
    return Turn(position, role, content, tokens, bool(infer), moment(created_at), moment(said_at))


def drop_gone(connection: Connection, session_ref: int, marks: Marks) -> None:
    """Delete the turns that no tier needs any more."""
    connection.execute(_DROP_GONE, {"session_ref": session_ref, "through": marks.gone_through})


class Conversations(OnDatabase):
    """Appending turns, and reading a session back."""

    _key: ErasureKey
    _compaction: Compaction
    _idle_after: timedelta
    """Without a new turn for so long a session is extracted."""

    async def append(
        self, owner: Owner, turns: Sequence[NewTurn], key: IdempotencyKey | None = None
    ) -> Appended:
        """Store turns, compact where due. Raises `IdempotencyConflict`."""

        def append(connection: Connection) -> Appended:
            if key is None:
                return Appended(self._append(connection, owner, turns))
            use = Use.of(self._key, owner, turns, key)
            first = use.first_answer(connection)
            if first is not None:
                return first
            appended = Appended(self._append(connection, owner, turns))
            use.record(connection, appended)
            return appended

        return await self._db.write(append)

    async def close_sessions(self, owners: Owners) -> bool:
        """Make extraction due for all turns of these sessions. True where any was left."""
        if not self._compaction.extract:
            return False
        return await self._db.write(lambda connection: _close_all(connection, owners))

    async def conversations(self, owners: Owners, budget: int) -> list[Conversation]:
        """The conversations of a session, each with its newest turns within a token budget."""
        condition, named = where(owners, "s")
        query = _CONVERSATIONS.replace("{condition}", condition)

        def look(connection: Connection) -> list[Conversation]:
            return [
                Conversation(
                    principal=session["principal"],
                    agent=session["agent"],
                    session=session["session"],
                    digest=session["summary"] or "",
                    turns=self._latest(connection, session, budget),
                )
                for session in connection.execute(query, named).fetchall()
            ]

        return await self._db.read(look)

    def _await_extraction(self, connection: Connection) -> None:
        """Let every session with turns that were never extracted wait until it is idle."""
        connection.execute(_AWAIT_ALL, {"idle_after": span(self._idle_after)})

    def _append(self, connection: Connection, owner: Owner, turns: Sequence[NewTurn]) -> bool:
        time = now()
        named: dict[str, Any] = {
            "principal": owner.principal,
            "agent": owner.agent,
            "session": owner.session,
            "now": time,
        }
        tokens = sum(turn.tokens for turn in turns)
        session = one(connection, _GROW, {**named, "count": len(turns), "tokens": tokens})
        assert session is not None  # noqa: S101 - RETURNING after INSERT
        named["session_ref"] = session["id"]
        first = session["last_position"] - len(turns) + 1
        connection.executemany(
            _ADD_TURN,
            [
                {
                    "session_ref": session["id"],
                    "position": position,
                    "role": turn.role,
                    "content": turn.content,
                    "tokens": turn.tokens,
                    "infer": turn.infer,
                    "now": time,
                    "said_at": time if turn.said_at is None else micros(turn.said_at),
                }
                for position, turn in enumerate(turns, start=first)
            ],
        )
        due: set[WorkKind] = set()
        if self._compaction.extract:
            connection.execute(_AWAIT, {**named, "run_after": time + span(self._idle_after)})
            if not all(turn.infer for turn in turns):
                # What is a fact already needs no context to become one.
                connection.execute(_CLOSE, named)
                due.add(WorkKind.EXTRACT)
        if self._compaction.due(
            tokens=session["window_tokens"], turns=session["window_turns"]
        ) and self._compact(connection, session["id"], marks_of(session)):
            due |= self._wanted
        return _make_due(connection, session["id"], due)

    @property
    def _wanted(self) -> set[WorkKind]:
        """The work that what leaves a window is due for."""
        tiers = (
            (WorkKind.FOLD, self._compaction.fold),
            (WorkKind.EXTRACT, self._compaction.extract),
        )
        return {kind for kind, wanted in tiers if wanted}

    def _compact(self, connection: Connection, session_ref: int, marks: Marks) -> bool:
        """Move what is too much out of the window. False where nothing can leave it."""
        named = {"session_ref": session_ref, "evicted_through": marks.evicted_through}
        window = connection.execute(_WINDOW_TOKENS, named).fetchall()
        kept = self._compaction.kept([row["tokens"] for row in window])
        if kept == len(window):
            return False
        marks = marks.evict(window[kept]["position"], self._compaction)
        connection.execute(
            _COMPACT,
            {
                "session_ref": session_ref,
                "evicted_through": marks.evicted_through,
                "folded_through": marks.folded_through,
                "extracted_through": marks.extracted_through,
                "tokens": sum(row["tokens"] for row in window[:kept]),
                "turns": kept,
            },
        )
        drop_gone(connection, session_ref, marks)
        return True

    def _latest(self, connection: Connection, session: Row, budget: int) -> list[Turn]:
        """The newest turns within the budget, oldest first; the last one always."""
        named = {
            "session_ref": session["id"],
            "folded_through": session["folded_through"],
            "most": self._compaction.hard_event_cap,
        }
        turns: list[Turn] = []
        left = budget
        for row in connection.execute(_LATEST, named):
            left -= row["tokens"]
            if turns and left < 0:
                break
            turns.append(turn_of(row))
        return turns[::-1]


def _close_all(connection: Connection, owners: Owners) -> bool:
    condition, named = where(owners, "s")
    values = {"now": now(), **named}
    for change in (_CLOSE_ALL, _MAKE_ALL_DUE):
        connection.execute(change.replace("{condition}", condition), values)
    return one(connection, _ANY_LIVES.replace("{condition}", condition), values) is not None


def _make_due(connection: Connection, session_ref: int, kinds: Collection[WorkKind]) -> bool:
    """Make work due. False where all of it is dead."""
    time, lives = now(), False
    for kind in kinds:
        named = {"session_ref": session_ref, "kind": kind, "now": time}
        connection.execute(_MAKE_DUE, named)
        lives |= one(connection, _LIVES, named) is not None
    return lives
