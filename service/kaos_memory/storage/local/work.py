"""Background work in SQLite: what its model call reads, and a commit only if that is unchanged."""

from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import timedelta
from uuid import uuid4

from kaos_memory.storage.erasure_key import ErasureKey
from kaos_memory.storage.local import new_facts, vectors
from kaos_memory.storage.local.claims import OF_LEASE, named_by
from kaos_memory.storage.local.conversations import MARKS, TURN, drop_gone, marks_of, turn_of
from kaos_memory.storage.local.database import Connection, OnDatabase, Row, now, one, span, value
from kaos_memory.storage.local.index import FactIndex
from kaos_memory.storage.prepared_facts import PreparedFact, not_erased, prepared
from kaos_memory.storage.protocol import Batch, Lease, LeaseLost, WorkKind
from kaos_memory.tiers.memory import Digest, NewFact, Owner
from kaos_memory.tiers.window import MAX_BATCH_TOKENS, Compaction, Marks, batch

_HELD = f"SELECT 1 FROM work WHERE {OF_LEASE}"
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
_DONE = f"DELETE FROM work WHERE {OF_LEASE}"
_MORE = f"""
    UPDATE work SET lease = NULL, waiting = :waiting, run_after = :run_after, attempts = 0,
        failures = 0, last_error = NULL
    WHERE {OF_LEASE}
"""
_TAKE_DEAD = """
    UPDATE work SET dead = 0, lease = :token
    WHERE session_ref = :session_ref AND kind = :kind AND dead
    RETURNING principal, agent
"""


class Work(OnDatabase):
    """Loading and committing background work."""

    _compaction: Compaction
    _idle_after: timedelta
    _digest_retention: int
    _provenance: tuple[str, str]
    """The extraction's model and the hash of its prompt."""
    _key: ErasureKey
    _index: FactIndex

    async def load(self, lease: Lease) -> Batch | None:
        """What the lease's model call reads; None where nothing is left, and the work is done."""
        return await self._db.write(lambda connection: self._load(connection, lease))

    async def commit_fold(self, batch: Batch, summary: str, tokens: int) -> None:
        """Store the next digest version and move the mark."""
        await self._db.write(lambda c: self._commit_fold(c, batch, summary, tokens))

    async def commit_extraction(
        self, batch: Batch, facts: Sequence[NewFact], repeated: Collection[str] = ()
    ) -> None:
        """Store facts, note which known ones were said again, and move the mark.

        Raises:
            ModelError: the embeddings have other dimensions than those of the store's facts.
        """
        new = await prepared(facts, vectors.encode)
        await self._db.write(lambda c: self._commit_extraction(c, batch, new, repeated))
        self._index.refresh()

    async def drop_work(self, session_ref: int, kind: WorkKind) -> bool:
        """Give up dead work: its turns are passed over. False where there is no such."""
        return await self._db.write(lambda connection: self._drop(connection, session_ref, kind))

    def _load(self, connection: Connection, lease: Lease) -> Batch | None:
        session = _held(connection, lease)
        marks = marks_of(session)
        idle = session["last_turn_at"] + span(self._idle_after) <= now()
        wanted = lease.kind is not WorkKind.EXTRACT or self._compaction.extract
        if lease.kind is WorkKind.EXTRACT and wanted and idle:
            marks = replace(marks, closed_through=session["last_position"])
        # A tier that was switched off while turns waited for it waits no longer.
        marks = marks.evict(marks.evicted_through, self._compaction)
        if marks != marks_of(session):
            _move(connection, lease.session_ref, marks)
        if not wanted:
            # What is in the window still is extracted if the tier is switched on again.
            drop_gone(connection, lease.session_ref, marks)
            connection.execute(_DONE, named_by(lease))
            return None
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
        self,
        connection: Connection,
        batch: Batch,
        new: Sequence[PreparedFact[bytes]],
        repeated: Collection[str],
    ) -> None:
        session = self._unchanged(connection, batch)
        hashes = [each.hash for each in new]
        erasures = new_facts.erasures_of(connection, self._key, batch.owner, hashes)
        lasting = not_erased(new, batch.turns, erasures)
        new_facts.add(connection, batch.owner, self._provenance, lasting)
        new_facts.said_again(connection, batch.owner, repeated)
        marks = replace(marks_of(session), extracted_through=batch.turns[-1].position)
        _move(connection, batch.lease.session_ref, marks)
        self._finish(connection, batch.lease, marks, session)

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
            connection.execute(_MORE, {**named_by(lease), **again})
        elif (
            lease.kind is WorkKind.EXTRACT
            and self._compaction.extract
            and marks.extracted_through < session["last_position"]
        ):
            idle_at = session["last_turn_at"] + span(self._idle_after)
            connection.execute(_MORE, {**named_by(lease), "waiting": True, "run_after": idle_at})
        else:
            connection.execute(_DONE, named_by(lease))

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
    if session is None or one(connection, _HELD, named_by(lease)) is None:
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


def _done(kind: WorkKind, marks: Marks) -> int:
    return marks.folded_through if kind is WorkKind.FOLD else marks.extracted_through


def _wanted(kind: WorkKind, marks: Marks) -> int:
    return marks.evicted_through if kind is WorkKind.FOLD else marks.extract_through
