"""Erasure in SQLite: fence, delete, scan again, and write the receipt, in one transaction."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar
from uuid import UUID

from kaos_memory.contract import Erasure, ErasureLevel
from kaos_memory.storage import receipts
from kaos_memory.storage.erasure_key import ErasureKey
from kaos_memory.storage.local import index
from kaos_memory.storage.local.database import (
    Connection,
    OnDatabase,
    micros,
    now,
    one,
    value,
    where,
)
from kaos_memory.storage.local.index import FactIndex
from kaos_memory.storage.local.receipts import record, recorded_owners
from kaos_memory.storage.local.schema import UNSCRUBBED, scrub
from kaos_memory.tiers.reach import Owners, Reach

_BUMP = """
    INSERT INTO epochs (subject, epoch) VALUES (:subject, 1)
    ON CONFLICT (subject) DO UPDATE SET epoch = epoch + 1
"""
# Whoever reads a session may have been shown its facts: they may not ask a model on.
_TAKE_LEASES = """
    UPDATE work SET lease = NULL, run_after = :now
    WHERE lease IS NOT NULL AND session_ref IN (SELECT s.id FROM sessions s WHERE {condition})
"""
_HASH_OF = "SELECT principal, hash FROM facts f WHERE f.id = :id AND {condition}"
_HASHES = "SELECT DISTINCT hash FROM facts f WHERE f.created_at <= :before AND {condition}"

# Every fact's session is there for as long as the fact is, or both are gone.
_OLD_FACT = """
    NOT EXISTS (
        SELECT 1 FROM sessions s
        WHERE s.principal = f.principal AND s.agent = f.agent AND s.session = f.session
            AND s.began_at > :before
    )
"""
_NONE = "false"

_T = TypeVar("_T")


@dataclass(frozen=True)
class Covered:
    """The rows of an erasure: conditions on sessions `s` and on facts `f`, and their values."""

    sessions: str
    """Their turns, digests and work go with them."""
    facts: str
    named: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def rows(self) -> dict[str, str]:
        """All rows as FROM clauses by table, in the order of deleting: what refers goes first."""
        of_sessions = f"session_ref IN (SELECT s.id FROM sessions s WHERE {self.sessions})"
        return {
            "turns": f"turns WHERE {of_sessions}",
            "digests": f"digests WHERE {of_sessions}",
            "work": f"work WHERE {of_sessions}",
            "sessions": f"sessions AS s WHERE {self.sessions}",
            "facts": f"facts AS f WHERE {self.facts}",
        }


class Erasures(OnDatabase):
    """Planning and carrying out erasures. Each returns when no file has a trace left."""

    _key: ErasureKey
    _index: FactIndex

    async def erase(self, reach: Reach, *, dry_run: bool, by: str | None = None) -> Erasure:
        """Delete everything that a reach covers, scan again, and write the receipt."""
        owners, level = reach.owners, ErasureLevel(reach.level)
        of_sessions, named = where(owners, "s")
        covered = Covered(of_sessions, where(owners, "f")[0], named)
        if dry_run:
            found = await self._db.read(lambda connection: self._counts(connection, covered))
            return receipts.plan(level, found)
        draft = receipts.draft(self._key, level, owners, by)

        def change(connection: Connection) -> Erasure:
            return record(connection, self._erase(connection, owners, covered, draft))

        return await self._without_trace(change)

    async def erase_fact(
        self, owners: Owners, fact_id: UUID, *, by: str | None = None
    ) -> Erasure | None:
        """Delete a fact of these owners as `erase` does; None where there is none."""
        condition, named = where(owners, "f")
        query = _HASH_OF.replace("{condition}", condition)

        def change(connection: Connection) -> Erasure | None:
            fact = one(connection, query, {**named, "id": fact_id.bytes})
            if fact is None:
                return None
            of_principal = Owners(fact["principal"], owners.agent, owners.session)
            of_sessions, of = where(of_principal, "s")
            take_leases = _TAKE_LEASES.replace("{condition}", of_sessions)
            connection.execute(take_leases, {**of, "now": now()})
            covered = _of_hash(of_principal, fact["hash"])
            draft = receipts.draft(self._key, ErasureLevel.FACT, of_principal, by, fact["hash"])
            return record(connection, self._erase(connection, of_principal, covered, draft))

        return await self._without_trace(change)

    async def replay(self, receipt: Erasure) -> Erasure:
        """Erase again what a receipt says was erased. Raises `UnusableReceipt`."""
        receipts.check(receipt, self._key)

        def change(connection: Connection) -> Erasure:
            record(connection, receipt)
            owners = recorded_owners(connection, self._key, receipt)
            if owners is None:
                return receipts.counted(receipt, {}, 0)
            covered = self._covered_by(connection, receipt, owners)
            return self._erase(connection, Owners(), covered, receipt)

        return await self._without_trace(change)

    async def _without_trace(self, change: Callable[[Connection], _T]) -> _T:
        """Change the rows, and leave nothing of what went in any file."""
        changed = await self._db.write(change)
        await self._db.alone(scrub)
        await self._index.discard()
        return changed

    def _covered_by(self, connection: Connection, receipt: Erasure, owners: Owners) -> Covered:
        """What is older than a receipt, of the owners that it is about."""
        assert receipt.erased_at is not None  # noqa: S101 - checked before
        before = {"before": micros(receipt.erased_at)}
        of_facts, named = where(owners, "f")
        if receipt.fact_hash is None:
            of_sessions, _ = where(owners, "s")
            return Covered(
                f"{of_sessions} AND s.began_at <= :before",
                f"{of_facts} AND {_OLD_FACT}",
                {**named, **before},
            )
        query = _HASHES.replace("{condition}", of_facts)
        for row in connection.execute(query, {**named, **before}):
            if self._key.fact(row["hash"]).hex() == receipt.fact_hash:
                copies = _of_hash(owners, row["hash"])
                older = f"f.created_at <= :before AND {copies.facts}"
                return Covered(_NONE, older, {**copies.named, **before})
        return Covered(_NONE, _NONE)

    def _erase(
        self, connection: Connection, owners: Owners, covered: Covered, receipt: Erasure
    ) -> Erasure:
        """Fence, delete and scan again: the receipt with what went and what is left."""
        connection.execute(_BUMP, {"subject": self._key.erased_subject(owners)})
        deleted = self._delete(connection, covered)
        left = self._counts(connection, covered)
        if any(deleted.values()):
            connection.execute("INSERT OR IGNORE INTO meta VALUES (?, '')", (UNSCRUBBED,))
        if deleted["facts"]:
            index.forget(connection)
        return receipts.counted(receipt, deleted, sum(left.values()))

    def _delete(self, connection: Connection, covered: Covered) -> dict[str, int]:
        return {
            table: connection.execute(f"DELETE FROM {rows}", covered.named).rowcount
            for table, rows in covered.rows().items()
        }

    def _counts(self, connection: Connection, covered: Covered) -> dict[str, int]:
        return {
            table: value(connection, f"SELECT count(*) FROM {rows}", covered.named)
            for table, rows in covered.rows().items()
        }


def _of_hash(owners: Owners, text_hash: str) -> Covered:
    condition, named = where(owners, "f")
    return Covered(_NONE, f"f.hash = :hash AND {condition}", {**named, "hash": text_hash})
