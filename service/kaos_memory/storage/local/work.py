"""Background work in SQLite: claimed by lease, committed only if nothing changed meanwhile.

A lease is a row's `lease` token together with `run_after`, which lies in the future as long as
the lease lasts: what a process that died had claimed becomes due again by itself. Work that is
`waiting` is due once its session has been idle for long enough, or has been closed.
"""

import json
from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import uuid4

from kaos_memory.storage.erasure_key import ErasureKey
from kaos_memory.storage.local import facts
from kaos_memory.storage.local.conversations import MARKS, TURN, drop_gone, marks_of, turn_of
from kaos_memory.storage.local.database import Connection, OnDatabase, Row, now, one, span, value
from kaos_memory.storage.local.index import FactIndex
from kaos_memory.storage.protocol import Batch, Lease, LeaseLost, WorkKind
from kaos_memory.tiers.memory import Digest, NewFact, Owner
from kaos_memory.tiers.window import MAX_BATCH_TOKENS, Compaction, Marks, batch

# Every claimant in its turn: the next one by name after the last that was served, however much
# others have waiting.
_CLAIM = """
    UPDATE work SET lease = :token, run_after = :until, attempts = attempts + 1
    WHERE (session_ref, kind) = (
        SELECT session_ref, kind FROM work
        WHERE NOT dead AND NOT waiting AND claimant > :served AND run_after <= :now
            AND kind IN (SELECT value FROM json_each(:kinds))
        ORDER BY claimant, run_after LIMIT 1
    )
    RETURNING session_ref, kind, principal, agent, attempts, failures, claimant
"""
_STOP_WAITING = "UPDATE work SET waiting = 0 WHERE waiting AND run_after <= :now"
_OF_LEASE = "session_ref = :session_ref AND kind = :kind AND lease = :token"
_RENEW = f"UPDATE work SET run_after = :until WHERE {_OF_LEASE}"
_HELD = f"SELECT 1 FROM work WHERE {_OF_LEASE}"
_SESSION = f"""
    SELECT session, digest_version, last_position, {MARKS}, last_turn_at
    FROM sessions WHERE id = :session_ref
"""
_PENDING = f"""
    SELECT {TURN} FROM (
        SELECT *, sum(tokens) OVER (ORDER BY position) - tokens AS before FROM turns
        WHERE session_ref = :session_ref AND position > :after AND position <= :through
        ORDER BY position LIMIT 500
    ) WHERE before < :tokens ORDER BY position
"""
_DIGEST = "SELECT summary FROM digests WHERE session_ref = :session_ref AND version = :version"
_EPOCH = "SELECT epoch FROM epochs WHERE subject = :subject"
_ADD_DIGEST = """
    INSERT INTO digests (session_ref, version, summary, tokens, first_position, last_position,
                         created_at)
    VALUES (:session_ref, :version, :summary, :tokens, :first, :last, :now)
"""
_RETAIN_DIGESTS = """
    DELETE FROM digests WHERE session_ref = :session_ref AND version <= :version - :retained
"""
_FOLDED = """
    UPDATE sessions SET folded_through = :last, digest_version = :version WHERE id = :session_ref
"""
_MOVE = f"""
    UPDATE sessions SET ({MARKS}) = (:evicted, :folded, :extracted, :closed)
    WHERE id = :session_ref
"""
_DONE = f"DELETE FROM work WHERE {_OF_LEASE}"
_MORE = f"""
    UPDATE work SET lease = NULL, waiting = :waiting, run_after = :run_after, attempts = 0,
        failures = 0, last_error = NULL
    WHERE {_OF_LEASE}
"""
_TAKE_DEAD = """
    UPDATE work SET dead = 0, lease = :token
    WHERE session_ref = :session_ref AND kind = :kind AND dead
    RETURNING principal, agent
"""
_GIVE_BACK = f"""
    UPDATE work SET lease = NULL, last_error = :reason, failures = failures + :failures,
        dead = :dead, run_after = :run_after
    WHERE {_OF_LEASE}
"""
_RELEASE = f"""
    UPDATE work SET lease = NULL, run_after = :now, attempts = attempts - 1 WHERE {_OF_LEASE}
"""


class Work(OnDatabase):
    """Claiming, loading and committing background work."""

    _compaction: Compaction
    _idle_after: timedelta
    _digest_retention: int
    _provenance: tuple[str, str]
    """The extraction's model and the hash of its prompt."""
    _key: ErasureKey
    _index: FactIndex
    _served: str = ""
    """The claimant that was served last."""

    async def claim(
        self, lease_for: timedelta, kinds: Collection[WorkKind] = tuple(WorkKind)
    ) -> Lease | None:
        """Take one piece of due work, in turn over principals, or None."""
        return await self._db.write(lambda connection: self._claim(connection, lease_for, kinds))

    async def renew(self, lease: Lease, lease_for: timedelta) -> None:
        """Prolong a lease. Raises `LeaseLost` where it is no longer ours."""
        named = {**_named(lease), "until": now() + span(lease_for)}
        if not await self._db.write(lambda c: c.execute(_RENEW, named).rowcount):
            raise LeaseLost

    async def load(self, lease: Lease) -> Batch | None:
        """What the lease's model call reads; None where nothing is left, and the work is done."""
        return await self._db.write(lambda connection: self._load(connection, lease))

    async def commit_fold(self, batch: Batch, summary: str, tokens: int) -> None:
        """Store the next digest version and move the mark."""
        await self._db.write(lambda c: self._commit_fold(c, batch, summary, tokens))

    async def commit_extraction(self, batch: Batch, facts: Sequence[NewFact]) -> None:
        """Store facts and move the mark.

        Raises:
            ModelError: the embeddings have other dimensions than those of the store's facts.
        """
        await self._db.write(lambda c: self._commit_extraction(c, batch, facts))
        self._index.refresh()

    async def postpone(self, lease: Lease, reason: str, wait: timedelta) -> None:
        """Give work back that could not be done through no fault of its own."""
        await self._give_back(lease, reason, 0, wait)

    async def fail(self, lease: Lease, reason: str, wait: timedelta | None) -> None:
        """Give back work that failed: due after a wait, or without one dead, its turns intact."""
        await self._give_back(lease, reason, 1, wait)

    async def release(self, lease: Lease) -> None:
        """Give work back untouched, as at shutdown."""
        named = {**_named(lease), "now": now()}
        await self._db.write(lambda c: c.execute(_RELEASE, named))

    async def drop_work(self, session_ref: int, kind: WorkKind) -> bool:
        """Give up dead work: its turns are passed over. False where there is no such."""
        return await self._db.write(lambda connection: self._drop(connection, session_ref, kind))

    def _claim(
        self, connection: Connection, lease_for: timedelta, kinds: Collection[WorkKind]
    ) -> Lease | None:
        time, token = now(), uuid4()
        named: dict[str, Any] = {
            "now": time,
            "token": token.bytes,
            "until": time + span(lease_for),
            "kinds": json.dumps(list(kinds)),
        }
        connection.execute(_STOP_WAITING, named)
        row = one(connection, _CLAIM, {**named, "served": self._served})
        if row is None and self._served:
            row = one(connection, _CLAIM, {**named, "served": ""})
        if row is None:
            return None
        self._served = row["claimant"]
        return Lease(
            session_ref=row["session_ref"],
            kind=WorkKind(row["kind"]),
            token=token,
            attempt=row["attempts"],
            failures=row["failures"],
            principal=row["principal"],
            agent=row["agent"],
        )

    def _load(self, connection: Connection, lease: Lease) -> Batch | None:
        session = _held(connection, lease)
        marks = marks_of(session)
        idle = session["last_turn_at"] + span(self._idle_after) <= now()
        if lease.kind is WorkKind.EXTRACT and idle:
            marks = replace(marks, closed_through=session["last_position"])
        # A tier that was switched off while turns waited for it waits no longer.
        marks = marks.evict(marks.evicted_through, self._compaction)
        if marks != marks_of(session):
            _move(connection, lease.session_ref, marks)
        named = {
            "session_ref": lease.session_ref,
            "after": _done(lease.kind, marks),
            "through": _wanted(lease.kind, marks),
            "tokens": MAX_BATCH_TOKENS,
        }
        rows = connection.execute(_PENDING, named).fetchall()
        if not rows:
            self._finish(connection, lease, marks, session)
            return None
        version = session["digest_version"]
        of_digest = {"session_ref": lease.session_ref, "version": version}
        return Batch(
            lease=lease,
            owner=Owner(lease.principal, lease.agent, session["session"]),
            digest=Digest(version, value(connection, _DIGEST, of_digest) or ""),
            turns=batch([turn_of(row) for row in rows]),
            epochs=self._epochs(connection, lease),
        )

    def _commit_fold(self, connection: Connection, batch: Batch, summary: str, tokens: int) -> None:
        session = self._unchanged(connection, batch)
        last = batch.turns[-1].position
        named = {
            "session_ref": batch.lease.session_ref,
            "version": batch.digest.version + 1,
            "summary": summary,
            "tokens": tokens,
            "first": batch.turns[0].position,
            "last": last,
            "retained": self._digest_retention,
            "now": now(),
        }
        for statement in (_ADD_DIGEST, _FOLDED, _RETAIN_DIGESTS):
            connection.execute(statement, named)
        self._finish(
            connection, batch.lease, replace(marks_of(session), folded_through=last), session
        )

    def _commit_extraction(
        self, connection: Connection, batch: Batch, new: Sequence[NewFact]
    ) -> None:
        session = self._unchanged(connection, batch)
        facts.add(connection, batch.owner, self._provenance, new)
        marks = replace(marks_of(session), extracted_through=batch.turns[-1].position)
        _move(connection, batch.lease.session_ref, marks)
        self._finish(connection, batch.lease, marks, session)

    async def _give_back(
        self, lease: Lease, reason: str, failures: int, wait: timedelta | None
    ) -> None:
        named = {
            **_named(lease),
            "reason": reason,
            "failures": failures,
            "dead": wait is None,
            "run_after": now() + span(wait or timedelta(0)),
        }
        await self._db.write(lambda c: c.execute(_GIVE_BACK, named))

    def _drop(self, connection: Connection, session_ref: int, kind: WorkKind) -> bool:
        token = uuid4()
        named = {"session_ref": session_ref, "kind": kind, "token": token.bytes}
        taken = one(connection, _TAKE_DEAD, named)
        if taken is None:
            return False
        lease = Lease(session_ref, kind, token, 1, 0, taken["principal"], taken["agent"])
        session = _held(connection, lease)
        marks = marks_of(session)
        if kind is WorkKind.FOLD:
            marks = replace(marks, folded_through=marks.evicted_through)
        else:
            marks = replace(marks, extracted_through=marks.extract_through)
        _move(connection, session_ref, marks)
        self._finish(connection, lease, marks, session)
        return True

    def _finish(self, connection: Connection, lease: Lease, marks: Marks, session: Row) -> None:
        """Leave the work due again, waiting for an idle session, or done."""
        drop_gone(connection, lease.session_ref, marks)
        if _done(lease.kind, marks) < _wanted(lease.kind, marks):
            again = {"waiting": False, "run_after": now()}
            connection.execute(_MORE, {**_named(lease), **again})
        elif (
            lease.kind is WorkKind.EXTRACT
            and self._compaction.extract
            and marks.extracted_through < session["last_position"]
        ):
            idle_at = session["last_turn_at"] + span(self._idle_after)
            connection.execute(_MORE, {**_named(lease), "waiting": True, "run_after": idle_at})
        else:
            connection.execute(_DONE, _named(lease))

    def _unchanged(self, connection: Connection, batch: Batch) -> Row:
        """The session, if all that the model call relied on is as it was."""
        if self._epochs(connection, batch.lease) != batch.epochs:
            raise LeaseLost
        session = _held(connection, batch.lease)
        if _done(batch.lease.kind, marks_of(session)) != batch.turns[0].position - 1:
            raise LeaseLost
        return session

    def _epochs(self, connection: Connection, lease: Lease) -> tuple[int, ...]:
        subjects = self._key.subjects(lease.principal)
        return tuple(value(connection, _EPOCH, {"subject": each}) or 0 for each in subjects)


def _held(connection: Connection, lease: Lease) -> Row:
    """The session, if the lease still holds."""
    session = one(connection, _SESSION, {"session_ref": lease.session_ref})
    if session is None or one(connection, _HELD, _named(lease)) is None:
        raise LeaseLost
    return session


def _move(connection: Connection, session_ref: int, marks: Marks) -> None:
    connection.execute(
        _MOVE,
        {
            "session_ref": session_ref,
            "evicted": marks.evicted_through,
            "folded": marks.folded_through,
            "extracted": marks.extracted_through,
            "closed": marks.closed_through,
        },
    )


def _named(lease: Lease) -> dict[str, Any]:
    return {
        "session_ref": lease.session_ref,
        "kind": lease.kind,
        "token": lease.token.bytes,
    }


def _done(kind: WorkKind, marks: Marks) -> int:
    return marks.folded_through if kind is WorkKind.FOLD else marks.extracted_through


def _wanted(kind: WorkKind, marks: Marks) -> int:
    return marks.evicted_through if kind is WorkKind.FOLD else marks.extract_through
