"""Erasure in PostgreSQL: fence, delete, scan again, and write the receipt, in one transaction."""

from kaos_memory.contract import Erasure
from kaos_memory.storage.postgres.database import (
    Connection,
    OnDatabase,
    erased_subject,
    where,
)
from kaos_memory.tiers.reach import Reach

# In the order of deleting: rows that refer to others first.
_OF_SESSIONS = ("turns", "digests", "work")
_BUMP = """
    INSERT INTO epochs AS e (subject, epoch) VALUES ($1, 1)
    ON CONFLICT (subject) DO UPDATE SET epoch = e.epoch + 1
"""
_RECEIPT = """
    INSERT INTO erasures (level, principal, agent, session, sessions, turns, digests, facts,
                          residue)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
    RETURNING id, erased_at
"""


class Erasures(OnDatabase):
    """Planning and carrying out erasures."""

    async def erase(self, reach: Reach, *, dry_run: bool) -> Erasure:
        """Delete everything that a reach covers, scan again, and write the receipt."""
        if dry_run:
            async with self._db.read(reach.owners) as connection:
                found = await self._counts(connection, reach)
            return _erasure(reach, found, residue=sum(found.values()))
        subject = erased_subject(reach.owners)
        async with self._db.erasure(reach.owners, subject) as connection:
            await connection.execute(_BUMP, self._db.schema.subject(subject.kind, subject.name))
            deleted = await self._delete(connection, reach)
            left = await self._counts(connection, reach)
            row = await connection.fetchrow(
                _RECEIPT,
                reach.level,
                *self._hashed(reach),
                deleted["sessions"],
                deleted["turns"],
                deleted["digests"],
                deleted["facts"],
                sum(left.values()),
            )
        assert row is not None  # noqa: S101 - RETURNING after INSERT
        receipt = _erasure(reach, deleted, residue=sum(left.values()))
        return receipt.model_copy(
            update={"id": str(row["id"]), "erased_at": row["erased_at"].isoformat()}
        )

    async def _delete(self, connection: Connection, reach: Reach) -> dict[str, int]:
        of_sessions, arguments = where(reach.owners, "s")
        of_facts, _ = where(reach.owners, "f")
        counts: dict[str, int] = {}
        for table in _OF_SESSIONS:
            counts[table] = _count(
                await connection.execute(
                    f"DELETE FROM {table} t USING sessions s "
                    f"WHERE s.id = t.session_ref AND {of_sessions}",
                    *arguments,
                )
            )
        counts["sessions"] = _count(
            await connection.execute(f"DELETE FROM sessions s WHERE {of_sessions}", *arguments)
        )
        counts["facts"] = _count(
            await connection.execute(f"DELETE FROM facts f WHERE {of_facts}", *arguments)
        )
        return counts

    async def _counts(self, connection: Connection, reach: Reach) -> dict[str, int]:
        of_sessions, arguments = where(reach.owners, "s")
        of_facts, _ = where(reach.owners, "f")
        scans = [
            f"(SELECT count(*) FROM {table} t JOIN sessions s ON s.id = t.session_ref "
            f"WHERE {of_sessions}) AS {table}"
            for table in _OF_SESSIONS
        ]
        scans.append(f"(SELECT count(*) FROM sessions s WHERE {of_sessions}) AS sessions")
        scans.append(f"(SELECT count(*) FROM facts f WHERE {of_facts}) AS facts")
        row = await connection.fetchrow(f"SELECT {', '.join(scans)}", *arguments)
        return dict(row or {})

    def _hashed(self, reach: Reach) -> list[bytes | None]:
        named = (
            ("principal", reach.owners.principal),
            ("agent", reach.owners.agent),
            ("session", reach.owners.session),
        )
        return [
            None if name is None else self._db.schema.subject(kind, name) for kind, name in named
        ]


def _count(status: str) -> int:
    return int(status.rpartition(" ")[2])


def _erasure(reach: Reach, counts: dict[str, int], residue: int) -> Erasure:
    return Erasure(
        level=reach.level,
        sessions=counts["sessions"],
        turns=counts["turns"],
        digests=counts["digests"],
        facts=counts["facts"],
        residue=residue,
    )
