"""Claims on background work in SQLite.

A lease is a row's `lease` token together with `run_after`, which lies in the future as long as
the lease lasts: what a process that died had claimed becomes due again by itself. Work that is
`waiting` is due once its session has been idle for long enough, or has been closed.
"""

from datetime import timedelta
from typing import Any
from uuid import uuid4

from kaos_memory.storage.local.database import Connection, OnDatabase, now, one, span
from kaos_memory.storage.protocol import Lease, LeaseLost, WorkKind

OF_LEASE = "session_ref = :session_ref AND kind = :kind AND lease = :token"
# Every claimant in its turn: the next one by name after the last that was served, however much
# others have waiting.
_CLAIM = """
    UPDATE work SET lease = :token, run_after = :until, attempts = attempts + 1
    WHERE (session_ref, kind) = (
        SELECT session_ref, kind FROM work
        WHERE NOT dead AND NOT waiting AND claimant > :served AND run_after <= :now
            AND (:only IS NULL OR kind = :only)
        ORDER BY claimant, run_after LIMIT 1
    )
    RETURNING session_ref, kind, principal, agent, attempts, failures, claimant
"""
_STOP_WAITING = "UPDATE work SET waiting = 0 WHERE waiting AND run_after <= :now"
_RENEW = f"UPDATE work SET run_after = :until WHERE {OF_LEASE}"
_GIVE_BACK = f"""
    UPDATE work SET lease = NULL, last_error = :reason, failures = failures + :failures,
        dead = :dead, run_after = :run_after
    WHERE {OF_LEASE}
"""
_RELEASE = f"""
    UPDATE work SET lease = NULL, run_after = :now, attempts = attempts - 1 WHERE {OF_LEASE}
"""


class Claims(OnDatabase):
    """Taking work, keeping it, and giving it back."""

    _served: str = ""
    """The claimant that was served last."""

    async def claim(self, lease_for: timedelta, only: WorkKind | None = None) -> Lease | None:
        """Take one piece of due work, or of one kind of it, in turn over principals, or None."""
        return await self._db.write(lambda connection: self._claim(connection, lease_for, only))

    async def renew(self, lease: Lease, lease_for: timedelta) -> None:
        """Prolong a lease. Raises `LeaseLost` where it is no longer ours."""
        named = {**named_by(lease), "until": now() + span(lease_for)}
        if not await self._db.write(lambda c: c.execute(_RENEW, named).rowcount):
            raise LeaseLost

    async def postpone(self, lease: Lease, reason: str, wait: timedelta) -> None:
        """Give work back that could not be done through no fault of its own."""
        await self._give_back(lease, reason, 0, wait)

    async def fail(self, lease: Lease, reason: str, wait: timedelta | None) -> None:
        """Give back work that failed: due after a wait, or without one dead, its turns intact."""
        await self._give_back(lease, reason, 1, wait)

    async def release(self, lease: Lease) -> None:
        """Give work back untouched, as at shutdown."""
        named = {**named_by(lease), "now": now()}
        await self._db.write(lambda c: c.execute(_RELEASE, named))

    def _claim(
        self, connection: Connection, lease_for: timedelta, only: WorkKind | None
    ) -> Lease | None:
        time, token = now(), uuid4()
        named: dict[str, Any] = {
            "now": time,
            "token": token.bytes,
            "until": time + span(lease_for),
            "only": only,
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

    async def _give_back(
        self, lease: Lease, reason: str, failures: int, wait: timedelta | None
    ) -> None:
        named = {
            **named_by(lease),
            "reason": reason,
            "failures": failures,
            "dead": wait is None,
            "run_after": now() + span(wait or timedelta(0)),
        }
        await self._db.write(lambda c: c.execute(_GIVE_BACK, named))


def named_by(lease: Lease) -> dict[str, Any]:
    """The values of `OF_LEASE`."""
    return {
        "session_ref": lease.session_ref,
        "kind": lease.kind,
        "token": lease.token.bytes,
    }
