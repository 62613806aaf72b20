"""Erasure in PostgreSQL: fence, delete, scan again, and write the receipt, in one transaction."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from kaos_memory.contract import Erasure, ErasureLevel
from kaos_memory.storage import receipts
from kaos_memory.storage.postgres import time_limits
from kaos_memory.storage.postgres.database import (
    STORE,
    Connection,
    OnDatabase,
    erased_subject,
    where,
)
from kaos_memory.storage.postgres.receipts import record
from kaos_memory.storage.postgres.replays import recorded_owners
from kaos_memory.tiers.reach import Owners, Reach

_BUMP = """
    INSERT INTO epochs AS e (subject, epoch) VALUES ($1, 1)
    ON CONFLICT (subject) DO UPDATE SET epoch = e.epoch + 1
"""
_HASH_OF = "SELECT principal, hash FROM facts f WHERE f.id = $1 AND {condition}"
# Whoever reads a session may have been shown its facts: they may not ask a model on.
_TAKE_LEASES = """
    UPDATE work w SET lease = NULL, run_after = now() FROM sessions s
    WHERE s.id = w.session_ref AND w.lease IS NOT NULL AND {condition}
"""
_HASHES = "SELECT DISTINCT hash FROM facts f WHERE f.created_at <= $1 AND {condition}"

# Every fact's session is there for as long as the fact is, or both are gone.
_OLD_FACT = """
    NOT EXISTS (
        SELECT 1 FROM sessions s
        WHERE (s.principal, s.agent, s.session) = (f.principal, f.agent, f.session)
            AND s.began_at > $1
    )
"""


@dataclass(frozen=True)
class Selection:
    """A condition on rows, and its arguments from `$1` on."""

    condition: str
    arguments: Sequence[Any] = field(default_factory=list[Any])


@dataclass(frozen=True)
class Covered:
    """The rows of an erasure."""

    sessions: Selection
    """Sessions `s`, with their turns, digests and work."""
    facts: Selection
    """Facts `f`."""

    def rows(self) -> dict[str, tuple[str, Sequence[Any]]]:
        """All rows as FROM clauses by table, in the order of deleting: what refers goes first."""
        sessions, facts = self.sessions, self.facts
        of_sessions = (
            f"t WHERE t.session_ref IN (SELECT s.id FROM sessions s WHERE {sessions.condition})"
        )
        return {
            "turns": (f"turns {of_sessions}", sessions.arguments),
            "digests": (f"digests {of_sessions}", sessions.arguments),
            "work": (f"work {of_sessions}", sessions.arguments),
            "sessions": (f"sessions s WHERE {sessions.condition}", sessions.arguments),
            "facts": (f"facts f WHERE {facts.condition}", facts.arguments),
        }


_NOTHING = Selection("false")


class Erasures(OnDatabase):
    """Planning and carrying out erasures."""

    async def erase(self, reach: Reach, *, dry_run: bool, by: str | None = None) -> Erasure:
        """Delete everything that a reach covers, scan again, and write the receipt."""
        owners, level = reach.owners, ErasureLevel(reach.level)
        covered = Covered(Selection(*where(owners, "s")), Selection(*where(owners, "f")))
        if dry_run:
            async with self._db.read(owners, seconds=time_limits.LONG) as connection:
                found = await self._counts(connection, covered)
            return receipts.plan(level, found)
        subject = erased_subject(owners)
        async with self._db.erasure(owners, subject) as connection:
            draft = receipts.draft(self._db.schema.erasure_key, level, owners, by)
            erased = await self._erase(connection, owners, covered, draft)
            return await record(connection, erased)

    async def erase_fact(
        self, owners: Owners, fact_id: UUID, *, by: str | None = None
    ) -> Erasure | None:
        """Delete a fact of these owners as `erase` does; None where there is none."""
        condition, arguments = where(owners, "f", first=2)
        query = _HASH_OF.replace("{condition}", condition)
        async with self._db.read(owners) as connection:
            fact = await connection.fetchrow(query, fact_id, *arguments)
        if fact is None:
            return None
        of_principal = Owners(fact["principal"], owners.agent, owners.session)
        subject = erased_subject(of_principal)
        async with self._db.erasure(of_principal, subject) as connection:
            if await connection.fetchrow(query, fact_id, *arguments) is None:
                return None  # erased by somebody else meanwhile
            of_sessions, named = where(of_principal, "s")
            await connection.execute(_TAKE_LEASES.replace("{condition}", of_sessions), *named)
            covered = Covered(_NOTHING, _of_hash(of_principal, fact["hash"]))
            key = self._db.schema.erasure_key
            draft = receipts.draft(key, ErasureLevel.FACT, of_principal, by, fact["hash"])
            erased = await self._erase(connection, of_principal, covered, draft)
            return await record(connection, erased)

    async def replay(self, receipt: Erasure) -> Erasure:
        """Erase again what a receipt says was erased. Raises `UnusableReceipt`."""
        key = self._db.schema.erasure_key
        receipts.check(receipt, key)
        async with self._db.erasure(Owners(), STORE) as connection:
            await record(connection, receipt)
            owners = await recorded_owners(connection, key, receipt)
            if owners is None:
                return receipts.counted(receipt, {}, 0)
            covered = await self._covered_by(connection, receipt, owners)
            return await self._erase(connection, Owners(), covered, receipt)

    async def _covered_by(
        self, connection: Connection, receipt: Erasure, owners: Owners
    ) -> Covered:
        """What is older than a receipt, of the owners that it is about."""
        before = receipt.erased_at
        if receipt.fact_hash is not None:
            condition, arguments = where(owners, "f", first=2)
            query = _HASHES.replace("{condition}", condition)
            hashes = await connection.fetch(query, before, *arguments)
            key = self._db.schema.erasure_key
            for [text_hash] in hashes:
                if key.fact(text_hash).hex() == receipt.fact_hash:
                    condition, arguments = where(owners, "f", first=3)
                    older = f"f.hash = $1 AND f.created_at <= $2 AND {condition}"
                    facts = Selection(older, [text_hash, before, *arguments])
                    return Covered(_NOTHING, facts)
            return Covered(_NOTHING, _NOTHING)
        of_sessions, arguments = where(owners, "s", first=2)
        of_facts, _ = where(owners, "f", first=2)
        return Covered(
            Selection(f"{of_sessions} AND s.began_at <= $1", [before, *arguments]),
            Selection(f"{of_facts} AND {_OLD_FACT}", [before, *arguments]),
        )

    async def _erase(
        self, connection: Connection, locked: Owners, covered: Covered, receipt: Erasure
    ) -> Erasure:
        """Fence, delete and scan again: the receipt with what went and what is left."""
        await connection.execute(_BUMP, self._db.schema.erasure_key.erased_subject(locked))
        deleted = await self._delete(connection, covered)
        left = await self._counts(connection, covered)
        return receipts.counted(receipt, deleted, sum(left.values()))

    async def _delete(self, connection: Connection, covered: Covered) -> dict[str, int]:
        deleted: dict[str, int] = {}
        for table, (rows, arguments) in covered.rows().items():
            status = await connection.execute(f"DELETE FROM {rows}", *arguments)
            deleted[table] = int(status.rpartition(" ")[2])
        return deleted

    async def _counts(self, connection: Connection, covered: Covered) -> dict[str, int]:
        return {
            table: await connection.fetchval(f"SELECT count(*) FROM {rows}", *arguments)
            for table, (rows, arguments) in covered.rows().items()
        }


def _of_hash(owners: Owners, text_hash: str) -> Selection:
    condition, arguments = where(owners, "f", first=2)
    return Selection(f"f.hash = $1 AND {condition}", [text_hash, *arguments])
