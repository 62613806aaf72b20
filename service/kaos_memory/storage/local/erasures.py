"""Erasure in SQLite: fence, delete, scan again, and write the receipt, in one transaction."""

from uuid import uuid4

from kaos_memory.contract import Erasure
from kaos_memory.storage.local import index
from kaos_memory.storage.local.database import Connection, OnDatabase, moment, now, one, where
from kaos_memory.storage.local.index import FactIndex
from kaos_memory.storage.local.schema import UNSCRUBBED, ErasureKey, scrub
from kaos_memory.tiers.reach import Reach

# In the order of deleting: rows that refer to others first.
_OF_SESSIONS = ("turns", "digests", "work")
_BUMP = """
    INSERT INTO epochs (subject, epoch) VALUES (:subject, 1)
    ON CONFLICT (subject) DO UPDATE SET epoch = epoch + 1
"""
_RECEIPT = """
    INSERT INTO erasures (id, level, principal, agent, session, sessions, turns, digests, facts,
                          residue, erased_at)
    VALUES (:id, :level, :principal, :agent, :session, :sessions, :turns, :digests, :facts,
            :residue, :erased_at)
"""


class Erasures(OnDatabase):
    """Planning and carrying out erasures."""

    _key: ErasureKey
    _index: FactIndex

    async def erase(self, reach: Reach, *, dry_run: bool) -> Erasure:
        """Delete everything that a reach covers, scan again, and write the receipt.

        Returns only when no file has a trace of it left.
        """
        if dry_run:
            found = await self._db.read(lambda connection: self._counts(connection, reach))
            return _erasure(reach, found, residue=sum(found.values()))
        receipt = await self._db.write(lambda connection: self._erase(connection, reach))
        await self._db.alone(scrub)
        await self._index.discard()
        return receipt

    def _erase(self, connection: Connection, reach: Reach) -> Erasure:
        connection.execute(_BUMP, {"subject": self._key.erased_subject(reach.owners)})
        deleted = self._delete(connection, reach)
        left = self._counts(connection, reach)
        if any(deleted.values()):
            connection.execute("INSERT OR IGNORE INTO meta VALUES (?, '')", (UNSCRUBBED,))
        if deleted["facts"]:
            index.forget(connection)
        receipt = _erasure(reach, deleted, residue=sum(left.values()))
        identity, erased_at = uuid4(), now()
        connection.execute(
            _RECEIPT,
            {
                **self._hashed(reach),
                **receipt.model_dump(include={"sessions", "turns", "digests", "facts", "residue"}),
                "id": identity.bytes,
                "level": reach.level,
                "erased_at": erased_at,
            },
        )
        return receipt.model_copy(
            update={"id": str(identity), "erased_at": moment(erased_at).isoformat()}
        )

    def _delete(self, connection: Connection, reach: Reach) -> dict[str, int]:
        of_sessions, named = where(reach.owners, "s")
        of_facts, _ = where(reach.owners, "f")
        counts = {
            table: connection.execute(
                f"DELETE FROM {table} WHERE session_ref IN "
                f"(SELECT s.id FROM sessions s WHERE {of_sessions})",
                named,
            ).rowcount
            for table in _OF_SESSIONS
        }
        for table, condition in (("sessions AS s", of_sessions), ("facts AS f", of_facts)):
            deleted = connection.execute(f"DELETE FROM {table} WHERE {condition}", named)
            counts[table.partition(" ")[0]] = deleted.rowcount
        return counts

    def _counts(self, connection: Connection, reach: Reach) -> dict[str, int]:
        of_sessions, named = where(reach.owners, "s")
        of_facts, _ = where(reach.owners, "f")
        scans = [
            f"(SELECT count(*) FROM {table} t JOIN sessions s ON s.id = t.session_ref "
            f"WHERE {of_sessions}) AS {table}"
            for table in _OF_SESSIONS
        ]
        scans.append(f"(SELECT count(*) FROM sessions s WHERE {of_sessions}) AS sessions")
        scans.append(f"(SELECT count(*) FROM facts f WHERE {of_facts}) AS facts")
        row = one(connection, f"SELECT {', '.join(scans)}", named)
        assert row is not None  # noqa: S101 - counts are always one row
        return dict(row)

    def _hashed(self, reach: Reach) -> dict[str, bytes | None]:
        named = {
            "principal": reach.owners.principal,
            "agent": reach.owners.agent,
            "session": reach.owners.session,
        }
        return {
            kind: None if name is None else self._key.subject(kind, name)
            for kind, name in named.items()
        }


def _erasure(reach: Reach, counts: dict[str, int], residue: int) -> Erasure:
    return Erasure(
        level=reach.level,
        sessions=counts["sessions"],
        turns=counts["turns"],
        digests=counts["digests"],
        facts=counts["facts"],
        residue=residue,
    )
