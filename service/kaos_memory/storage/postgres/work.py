"""Background work in PostgreSQL: claimed by lease, committed only if nothing changed meanwhile.

A lease is a row's `lease` token together with `run_after`, which lies in the future as long as
the lease lasts: an abandoned one becomes due again by itself.
"""

from collections.abc import Sequence
from datetime import timedelta
from uuid import uuid4

import asyncpg

from kaos_memory.storage.postgres.conversations import DROP_GONE, MARKS, TURN, marks_of
from kaos_memory.storage.postgres.database import Connection, OnDatabase, Role, subjects
from kaos_memory.storage.postgres.facts import vector
from kaos_memory.storage.protocol import Batch, Lease, LeaseLost, WorkKind
from kaos_memory.tiers.memory import Digest, NewFact, Owner, Turn
from kaos_memory.tiers.window import MAX_BATCH_TOKENS, Compaction, Marks, batch

_CLAIM = """
    UPDATE work SET lease = $1, run_after = now() + $2, attempts = attempts + 1
    WHERE (session_ref, kind) = (
        SELECT session_ref, kind FROM work WHERE NOT dead AND run_after <= now()
        ORDER BY run_after LIMIT 1 FOR UPDATE SKIP LOCKED
    )
    RETURNING session_ref, kind, principal, agent, attempts, failures
"""
_HELD = "SELECT 1 FROM work WHERE session_ref = $1 AND kind = $2 AND lease = $3"
_SESSION = f"SELECT session, digest_version, {MARKS} FROM sessions WHERE id = $1"
_PENDING = f"""
    SELECT {TURN} FROM (
        SELECT *, sum(tokens) OVER (ORDER BY position) - tokens AS before FROM turns
        WHERE session_ref = $1 AND position > $2 AND position <= $3
        ORDER BY position LIMIT 500
    ) waiting
    WHERE before < $4 ORDER BY position
"""
_DIGEST = "SELECT summary FROM digests WHERE session_ref = $1 AND version = $2"
_EPOCHS = "SELECT subject, epoch FROM epochs WHERE subject = ANY($1)"
_ADD_DIGEST = """
    INSERT INTO digests (session_ref, version, principal, agent, summary, tokens,
                         first_position, last_position)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
"""
_RETAIN_DIGESTS = "DELETE FROM digests WHERE session_ref = $1 AND version <= $2"
_ADD_FACTS = """
    INSERT INTO facts AS f (principal, agent, session, text, hash, embedding,
                            first_position, last_position, model, prompt_hash)
    SELECT $1, $2, $3, new.text, new.hash, new.embedding::halfvec, $4, $5, $6, $7
    FROM unnest($8::text[], $9::text[], $10::text[]) AS new (text, hash, embedding)
    ON CONFLICT (principal, agent, session, hash) DO UPDATE SET updated_at = now()
"""
_FOLDED = "UPDATE sessions SET folded_through = $2, digest_version = $3 WHERE id = $1"
_SKIP = "UPDATE sessions SET folded_through = $2, extracted_through = $3 WHERE id = $1"
_EXTRACTED = "UPDATE sessions SET extracted_through = $2 WHERE id = $1"
_DONE = "DELETE FROM work WHERE session_ref = $1 AND kind = $2 AND lease = $3"
_MORE = """
    UPDATE work SET lease = NULL, run_after = now(), attempts = 0, failures = 0, last_error = NULL
    WHERE session_ref = $1 AND kind = $2 AND lease = $3
"""
_GIVE_BACK = """
    UPDATE work SET lease = NULL, last_error = $4, failures = failures + $5,
        dead = $6::interval IS NULL, run_after = now() + coalesce($6, '0'::interval)
    WHERE session_ref = $1 AND kind = $2 AND lease = $3
"""
_RELEASE = """
    UPDATE work SET lease = NULL, run_after = now(), attempts = attempts - 1
    WHERE session_ref = $1 AND kind = $2 AND lease = $3
"""


class Work(OnDatabase):
    """Claiming, loading and committing background work."""

    _compaction: Compaction
    _digest_retention: int
    _provenance: tuple[str, str]
    """The extraction's model and the hash of its prompt."""

    async def claim(self, lease_for: timedelta) -> Lease | None:
        """Take one piece of due work, or None."""
        token = uuid4()
        async with self._db.anyone(Role.WORKER) as connection:
            row = await connection.fetchrow(_CLAIM, token, lease_for)
        if row is None:
            return None
        return Lease(
            session_ref=row["session_ref"],
            kind=WorkKind(row["kind"]),
            token=token,
            attempt=row["attempts"],
            failures=row["failures"],
            principal=row["principal"],
            agent=row["agent"],
        )

    async def load(self, lease: Lease) -> Batch | None:
        """What the lease's model call reads; None where nothing is left, and the work is done."""
        async with self._db.change(lease.principal, lease.agent, Role.WORKER) as connection:
            session = await self._locked(connection, lease)
            # A tier that was switched off while turns waited for it waits no longer.
            marks = marks_of(session)
            marks = marks.evict(marks.evicted_through, self._compaction)
            rows = await connection.fetch(
                _PENDING,
                lease.session_ref,
                _done(lease.kind, marks),
                marks.evicted_through,
                MAX_BATCH_TOKENS,
            )
            if not rows:
                await connection.execute(
                    _SKIP, lease.session_ref, marks.folded_through, marks.extracted_through
                )
                await connection.execute(DROP_GONE, lease.session_ref, marks.gone_through)
                await connection.execute(_DONE, lease.session_ref, lease.kind, lease.token)
                return None
            version = session["digest_version"]
            summary = await connection.fetchval(_DIGEST, lease.session_ref, version)
            return Batch(
                lease=lease,
                owner=Owner(lease.principal, lease.agent, session["session"]),
                digest=Digest(version, summary or ""),
                turns=batch([Turn(**dict(row)) for row in rows]),
                epochs=await self._epochs(connection, lease),
            )

    async def commit_fold(self, batch: Batch, summary: str, tokens: int) -> None:
        """Store the next digest version and move the mark."""
        lease, version = batch.lease, batch.digest.version + 1
        first, last = batch.turns[0].position, batch.turns[-1].position
        async with self._db.change(lease.principal, lease.agent, Role.WORKER) as connection:
            marks = marks_of(await self._unchanged(connection, batch))
            await connection.execute(
                _ADD_DIGEST,
                lease.session_ref,
                version,
                lease.principal,
                lease.agent,
                summary,
                tokens,
                first,
                last,
            )
            await connection.execute(_FOLDED, lease.session_ref, last, version)
            await connection.execute(
                _RETAIN_DIGESTS, lease.session_ref, version - self._digest_retention
            )
            marks = Marks(marks.evicted_through, last, marks.extracted_through)
            await self._finish(connection, lease, marks)

    async def commit_extraction(self, batch: Batch, facts: Sequence[NewFact]) -> None:
        """Store facts and move the mark."""
        lease, owner = batch.lease, batch.owner
        first, last = batch.turns[0].position, batch.turns[-1].position
        distinct = list({fact.hash: fact for fact in facts}.values())
        async with self._db.change(lease.principal, lease.agent, Role.WORKER) as connection:
            marks = marks_of(await self._unchanged(connection, batch))
            if distinct:
                await connection.execute(
                    _ADD_FACTS,
                    owner.principal,
                    owner.agent,
                    owner.session,
                    first,
                    last,
                    *self._provenance,
                    [fact.text for fact in distinct],
                    [fact.hash for fact in distinct],
                    [vector(fact.embedding) for fact in distinct],
                )
            await connection.execute(_EXTRACTED, lease.session_ref, last)
            marks = Marks(marks.evicted_through, marks.folded_through, last)
            await self._finish(connection, lease, marks)

    async def postpone(self, lease: Lease, reason: str, wait: timedelta) -> None:
        """Give work back that could not be done through no fault of its own."""
        await self._give_back(lease, reason, 0, wait)

    async def fail(self, lease: Lease, reason: str, wait: timedelta | None) -> None:
        """Give back work that failed: due after a wait, or without one dead, its turns intact."""
        await self._give_back(lease, reason, 1, wait)

    async def release(self, lease: Lease) -> None:
        """Give work back untouched, as at shutdown."""
        async with self._db.anyone(Role.WORKER) as connection:
            await connection.execute(_RELEASE, lease.session_ref, lease.kind, lease.token)

    async def _give_back(
        self, lease: Lease, reason: str, failures: int, wait: timedelta | None
    ) -> None:
        async with self._db.anyone(Role.WORKER) as connection:
            await connection.execute(
                _GIVE_BACK, lease.session_ref, lease.kind, lease.token, reason, failures, wait
            )

    async def _finish(self, connection: Connection, lease: Lease, marks: Marks) -> None:
        await connection.execute(DROP_GONE, lease.session_ref, marks.gone_through)
        left = _done(lease.kind, marks) < marks.evicted_through
        await connection.execute(
            _MORE if left else _DONE, lease.session_ref, lease.kind, lease.token
        )

    async def _locked(self, connection: Connection, lease: Lease) -> asyncpg.Record:
        """The session, locked before its work as everywhere, if the lease still holds."""
        session = await connection.fetchrow(f"{_SESSION} FOR UPDATE", lease.session_ref)
        held = await connection.fetchval(
            f"{_HELD} FOR UPDATE", lease.session_ref, lease.kind, lease.token
        )
        if session is None or held is None:
            raise LeaseLost
        return session

    async def _unchanged(self, connection: Connection, batch: Batch) -> asyncpg.Record:
        """The locked session, if all that the model call relied on is as it was."""
        if await self._epochs(connection, batch.lease) != batch.epochs:
            raise LeaseLost
        session = await self._locked(connection, batch.lease)
        if _done(batch.lease.kind, marks_of(session)) != batch.turns[0].position - 1:
            raise LeaseLost
        return session

    async def _epochs(self, connection: Connection, lease: Lease) -> tuple[int, ...]:
        keys = [
            self._db.schema.subject(subject.kind, subject.name)
            for subject in subjects(lease.principal)
        ]
        rows = await connection.fetch(_EPOCHS, keys)
        found = {row["subject"]: row["epoch"] for row in rows}
        return tuple(found.get(key, 0) for key in keys)


def _done(kind: WorkKind, marks: Marks) -> int:
    return marks.folded_through if kind is WorkKind.FOLD else marks.extracted_through
