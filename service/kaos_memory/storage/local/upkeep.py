"""What operators and the clock do: work at a glance, dead work, the day's tokens, retention."""

import json
from collections.abc import Collection, Mapping
from datetime import timedelta

from kaos_memory.settings import Retention
from kaos_memory.storage.local.database import Connection, OnDatabase, moment, now, span, value
from kaos_memory.storage.local.index import FactIndex
from kaos_memory.storage.protocol import WorkCount, WorkItem, WorkKind, WorkState

_STATE = """
    CASE WHEN dead THEN 'dead' WHEN waiting THEN 'waiting' WHEN run_after <= :now THEN 'due'
         WHEN lease IS NOT NULL THEN 'leased' ELSE 'retrying' END
"""
_SUMMARY = f"""
    SELECT kind, {_STATE} AS state, count(*) AS count,
           max(0, (:now - min(run_after)) / 1e6) AS oldest
    FROM work GROUP BY 1, 2 ORDER BY 1, 2
"""
_ITEMS = f"""
    SELECT session_ref, kind, {_STATE} AS state, principal, agent, attempts, failures, last_error,
           run_after
    FROM work WHERE {_STATE} IN (SELECT value FROM json_each(:states))
    ORDER BY run_after, session_ref, kind LIMIT :most
"""
_RETRY = """
    UPDATE work SET dead = 0, failures = 0, attempts = 0, run_after = :now
    WHERE session_ref = :session_ref AND kind = :kind AND dead
"""
_SPEND = """
    INSERT INTO token_usage (day, tokens) VALUES (:day, :tokens)
    ON CONFLICT (day) DO UPDATE SET tokens = tokens + :tokens
    RETURNING tokens
"""
_OLD = {
    "facts": """
        DELETE FROM facts WHERE number IN (
            SELECT number FROM facts WHERE updated_at < :before ORDER BY updated_at LIMIT :most
        )
    """,
    "digests": """
        DELETE FROM digests WHERE (session_ref, version) IN (
            SELECT d.session_ref, d.version
            FROM digests d JOIN sessions s ON s.id = d.session_ref
            WHERE d.created_at < :before AND d.version < s.digest_version
            ORDER BY d.created_at LIMIT :most
        )
    """,
    "receipts": """
        DELETE FROM erasures WHERE id IN (
            SELECT id FROM erasures WHERE erased_at < :before ORDER BY erased_at LIMIT :most
        )
    """,
    "idempotency_keys": """
        DELETE FROM idempotency WHERE key IN (
            SELECT key FROM idempotency WHERE stored_at < :before ORDER BY stored_at LIMIT :most
        )
    """,
}


class Upkeep(OnDatabase):
    """Looking at work, reviving it, counting tokens, deleting what is over age."""

    _index: FactIndex

    async def spend(self, tokens: int) -> int:
        """Add to the model tokens of the day (UTC), and return the store's sum."""
        named = {"day": moment(now()).date().isoformat(), "tokens": tokens}
        return await self._db.write(lambda connection: value(connection, _SPEND, named))

    async def work_summary(self) -> list[WorkCount]:
        """How much work there is, by kind and state."""
        rows = await self._db.read(lambda c: c.execute(_SUMMARY, {"now": now()}).fetchall())
        return [
            WorkCount(WorkKind(row["kind"]), WorkState(row["state"]), row["count"], row["oldest"])
            for row in rows
        ]

    async def work_items(self, states: Collection[WorkState], most: int) -> list[WorkItem]:
        """Work in these states, the longest due first."""
        named = {"now": now(), "states": json.dumps(list(states)), "most": most}
        rows = await self._db.read(lambda c: c.execute(_ITEMS, named).fetchall())
        return [
            WorkItem(
                row["session_ref"],
                WorkKind(row["kind"]),
                WorkState(row["state"]),
                row["principal"],
                row["agent"],
                row["attempts"],
                row["failures"],
                row["last_error"],
                moment(row["run_after"]),
            )
            for row in rows
        ]

    async def retry_work(self, session_ref: int, kind: WorkKind) -> bool:
        """Make dead work due again, with all its retries. False where there is no such."""
        named = {"session_ref": session_ref, "kind": kind, "now": now()}
        return await self._db.write(lambda c: c.execute(_RETRY, named).rowcount == 1)

    async def retain(self, retention: Retention, most: int) -> Mapping[str, int]:
        """Delete up to `most` of each kind of record that is over age. Returns how many."""
        ages = {
            "facts": timedelta(days=retention.facts_days),
            "digests": timedelta(days=retention.digests_days),
            "receipts": timedelta(days=retention.receipts_days),
            "idempotency_keys": timedelta(hours=retention.idempotency_hours),
        }
        wanted = {record: span(age) for record, age in ages.items() if age}  # none: for ever

        def delete(connection: Connection) -> dict[str, int]:
            return {
                record: connection.execute(
                    _OLD[record], {"before": now() - age, "most": most}
                ).rowcount
                for record, age in wanted.items()
            }

        deleted = await self._db.write(delete)
        if deleted.get("facts"):
            self._index.refresh()
        return deleted
