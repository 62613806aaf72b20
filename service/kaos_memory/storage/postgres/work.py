"""Background work in PostgreSQL: claimed by lease, committed only if nothing changed meanwhile.

A lease is a row's `lease` token together with `run_after`, which lies in the future as long as
the lease lasts: an abandoned one becomes due again by itself. Work that is `waiting` is due once
its session has been idle for long enough, or has been closed.
"""

from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import timedelta
from uuid import uuid4

import asyncpg

from kaos_memory.storage.postgres import new_facts
from kaos_memory.storage.postgres.conversations import DROP_GONE, MARKS, TURN, marks_of
from kaos_memory.storage.postgres.database import Connection, OnDatabase, Role
from kaos_memory.storage.postgres.facts import vector
from kaos_memory.storage.prepared_facts import not_erased, prepared
from kaos_memory.storage.protocol import Batch, Lease, LeaseLost, WorkKind
from kaos_memory.tiers.memory import Digest, NewFact, Owner, Turn
from kaos_memory.tiers.window import MAX_BATCH_TOKENS, Compaction, Marks, batch

# Every claimant in its turn: the next one by name after the last that was served, however much
# others have waiting. Along the index only work that is leased or backs off is passed over.
_CLAIM = """
    UPDATE work SET lease = $1, run_after = now() + $2, attempts = attempts + 1
    WHERE (session_ref, kind) = (
        SELECT session_ref, kind FROM work
        WHERE NOT dead AND NOT waiting AND run_after <= now() AND claimant > $3
        ORDER BY claimant, run_after LIMIT 1 FOR UPDATE SKIP LOCKED
    )
    RETURNING session_ref, kind, principal, agent, attempts, failures, claimant
"""
# Each kind has an index of its own for this: all others may have very much due.
_CLAIM_KIND = {
    kind: _CLAIM.replace("NOT waiting", f"NOT waiting AND kind = '{kind}'") for kind in WorkKind
}
# Many at once, so that no claimant's sessions wait behind another's for their turns.
_STOP_WAITING = """
    UPDATE work SET waiting = false WHERE (session_ref, kind) IN (
        SELECT session_ref, kind FROM work WHERE waiting AND run_after <= now()
        ORDER BY run_after LIMIT 5000 FOR UPDATE SKIP LOCKED
    )
"""
_RENEW = """
    UPDATE work SET run_after = now() + $4 WHERE session_ref = $1 AND kind = $2 AND lease = $3
"""
_HELD = "SELECT 1 FROM work WHERE session_ref = $1 AND kind = $2 AND lease = $3"
_SESSION = f"""
    SELECT session, digest_version, last_position, {MARKS}, last_turn_at + $2 <= now() AS idle
    FROM sessions WHERE id = $1 FOR UPDATE
"""
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
_FOLDED = "UPDATE sessions SET folded_through = $2, digest_version = $3 WHERE id = $1"
_MOVE = f"UPDATE sessions SET ({MARKS}) = ($2, $3, $4, $5) WHERE id = $1"
_EXTRACTED = "UPDATE sessions SET extracted_through = $2 WHERE id = $1"
_DONE = "DELETE FROM work WHERE session_ref = $1 AND kind = $2 AND lease = $3"
_MORE = """
    UPDATE work SET lease = NULL, run_after = now(), attempts = 0, failures = 0, last_error = NULL
    WHERE session_ref = $1 AND kind = $2 AND lease = $3
"""
_WAIT = """
    UPDATE work w SET lease = NULL, waiting = true, attempts = 0, failures = 0, last_error = NULL,
        run_after = (SELECT last_turn_at FROM sessions WHERE id = $1) + $4
    WHERE session_ref = $1 AND kind = $2 AND lease = $3
"""
_OWNER = "SELECT principal, agent FROM work WHERE session_ref = $1 AND kind = $2 AND dead"
_TAKE_DEAD = """
    UPDATE work SET dead = false, lease = $3 WHERE session_ref = $1 AND kind = $2 AND dead
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
    _idle_after: timedelta
    _digest_retention: int
    _provenance: tuple[str, str]
    """The extraction's model and the hash of its prompt."""
    _served: str = ""
    """The claimant that was served last. Each replica takes its own turns."""

    async def claim(self, lease_for: timedelta, only: WorkKind | None = None) -> Lease | None:
        """Take one piece of due work, or of one kind of it, in turn over principals, or None."""
        token, claim = uuid4(), _CLAIM if only is None else _CLAIM_KIND[only]
        async with self._db.anyone(Role.WORKER) as connection:
            await connection.execute(_STOP_WAITING)
            row = await connection.fetchrow(claim, token, lease_for, self._served)
            if row is None and self._served:
                row = await connection.fetchrow(claim, token, lease_for, "")
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

    async def renew(self, lease: Lease, lease_for: timedelta) -> None:
        """Prolong a lease. Raises `LeaseLost` where it is no longer ours."""
        async with self._db.anyone(Role.WORKER) as connection:
            held = await connection.execute(
                _RENEW, lease.session_ref, lease.kind, lease.token, lease_for
            )
        if held != "UPDATE 1":
            raise LeaseLost

    async def load(self, lease: Lease) -> Batch | None:
        """What the lease's model call reads; None where nothing is left, and the work is done."""
        async with self._db.change(lease.principal, lease.agent, Role.WORKER) as connection:
            session = await self._locked(connection, lease)
            marks = marks_of(session)
            wanted = lease.kind is not WorkKind.EXTRACT or self._compaction.extract
            if lease.kind is WorkKind.EXTRACT and wanted and session["idle"]:
                marks = replace(marks, closed_through=session["last_position"])
            # A tier that was switched off while turns waited for it waits no longer.
            marks = marks.evict(marks.evicted_through, self._compaction)
            if marks != marks_of(session):
                await self._move(connection, lease.session_ref, marks)
            if not wanted:
                # What is in the window still is extracted if the tier is switched on again.
                await connection.execute(DROP_GONE, lease.session_ref, marks.gone_through)
                await connection.execute(_DONE, lease.session_ref, lease.kind, lease.token)
                return None
            rows = await connection.fetch(
                _PENDING,
                lease.session_ref,
                _done(lease.kind, marks),
                _wanted(lease.kind, marks),
                MAX_BATCH_TOKENS,
            )
            if not rows:
                await self._finish(connection, lease, marks, session["last_position"])
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
            session = await self._unchanged(connection, batch)
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
            marks = replace(marks_of(session), folded_through=last)
            await self._finish(connection, lease, marks, session["last_position"])

    async def commit_extraction(
        self, batch: Batch, facts: Sequence[NewFact], repeated: Collection[str] = ()
    ) -> None:
        """Store facts, note which known ones were said again, and move the mark."""
        lease, owner, key = batch.lease, batch.owner, self._db.schema.erasure_key
        last = batch.turns[-1].position
        new = await prepared(facts, vector)
        async with self._db.change(lease.principal, lease.agent, Role.WORKER) as connection:
            session = await self._unchanged(connection, batch)
            hashes = [each.hash for each in new]
            erasures = await new_facts.erasures_of(connection, key, owner, hashes)
            lasting = not_erased(new, batch.turns, erasures)
            await new_facts.add(connection, owner, self._provenance, lasting)
            await new_facts.said_again(connection, owner, repeated)
            await connection.execute(_EXTRACTED, lease.session_ref, last)
            marks = replace(marks_of(session), extracted_through=last)
            await self._finish(connection, lease, marks, session["last_position"])

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

    async def drop_work(self, session_ref: int, kind: WorkKind) -> bool:
        """Give up dead work: its turns are passed over. False where there is no such."""
        async with self._db.anyone(Role.WORKER) as connection:
            found = await connection.fetchrow(_OWNER, session_ref, kind)
        if found is None:
            return False
        principal, agent = found["principal"], found["agent"]
        async with self._db.change(principal, agent, Role.WORKER) as connection:
            session = await connection.fetchrow(_SESSION, session_ref, self._idle_after)
            token = uuid4()
            taken = await connection.execute(_TAKE_DEAD, session_ref, kind, token)
            if session is None or taken != "UPDATE 1":
                return False
            marks = marks_of(session)
            if kind is WorkKind.FOLD:
                marks = replace(marks, folded_through=marks.evicted_through)
            else:
                marks = replace(marks, extracted_through=marks.extract_through)
            await self._move(connection, session_ref, marks)
            lease = Lease(session_ref, kind, token, 1, 0, principal, agent)
            await self._finish(connection, lease, marks, session["last_position"])
        return True

    async def _give_back(
        self, lease: Lease, reason: str, failures: int, wait: timedelta | None
    ) -> None:
        async with self._db.anyone(Role.WORKER) as connection:
            await connection.execute(
                _GIVE_BACK, lease.session_ref, lease.kind, lease.token, reason, failures, wait
            )

    async def _move(self, connection: Connection, session_ref: int, marks: Marks) -> None:
        await connection.execute(
            _MOVE,
            session_ref,
            marks.evicted_through,
            marks.folded_through,
            marks.extracted_through,
            marks.closed_through,
        )

    async def _finish(
        self, connection: Connection, lease: Lease, marks: Marks, last_position: int
    ) -> None:
        """Leave the work due again, waiting for an idle session, or done."""
        of_lease = (lease.session_ref, lease.kind, lease.token)
        await connection.execute(DROP_GONE, lease.session_ref, marks.gone_through)
        if _done(lease.kind, marks) < _wanted(lease.kind, marks):
            await connection.execute(_MORE, *of_lease)
        elif (
            lease.kind is WorkKind.EXTRACT
            and self._compaction.extract
            and marks.extracted_through < last_position
        ):
            await connection.execute(_WAIT, *of_lease, self._idle_after)
        else:
            await connection.execute(_DONE, *of_lease)

    async def _locked(self, connection: Connection, lease: Lease) -> asyncpg.Record:
        """The session, locked before its work as everywhere, if the lease still holds."""
        session = await connection.fetchrow(_SESSION, lease.session_ref, self._idle_after)
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
        keys = self._db.schema.erasure_key.subjects(lease.principal)
        rows = await connection.fetch(_EPOCHS, keys)
        found = {row["subject"]: row["epoch"] for row in rows}
        return tuple(found.get(key, 0) for key in keys)


def _done(kind: WorkKind, marks: Marks) -> int:
    return marks.folded_through if kind is WorkKind.FOLD else marks.extracted_through


def _wanted(kind: WorkKind, marks: Marks) -> int:
    return marks.evicted_through if kind is WorkKind.FOLD else marks.extract_through
