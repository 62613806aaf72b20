"""What operators and the clock do: work at a glance, dead work, the day's tokens, retention."""

from collections.abc import Collection, Mapping
from datetime import timedelta

from kaos_memory.settings import Retention
from kaos_memory.storage.postgres.database import OnDatabase, Role
from kaos_memory.storage.protocol import WorkCount, WorkItem, WorkKind, WorkState

_STATE = """
    CASE WHEN dead THEN 'dead' WHEN waiting THEN 'waiting' WHEN run_after <= now() THEN 'due'
         WHEN lease IS NOT NULL THEN 'leased' ELSE 'retrying' END
"""
_SUMMARY = f"""
    SELECT kind, {_STATE} AS state, count(*) AS count,
           greatest(0, extract(epoch FROM now() - min(run_after)))::float8 AS oldest
    FROM work GROUP BY 1, 2 ORDER BY 1, 2
"""
_ITEMS = f"""
    SELECT * FROM (
        SELECT session_ref, kind, {_STATE} AS state, principal, agent, attempts, failures,
               last_error, run_after
        FROM work
    ) w WHERE state = ANY($1) ORDER BY run_after, session_ref, kind LIMIT $2
"""
_RETRY = """
    UPDATE work SET dead = false, failures = 0, attempts = 0, run_after = now()
    WHERE session_ref = $1 AND kind = $2 AND dead
"""
_SPEND = """
    INSERT INTO token_usage AS u (day, tokens) VALUES ((now() AT TIME ZONE 'UTC')::date, $1)
    ON CONFLICT (day) DO UPDATE SET tokens = u.tokens + $1
    RETURNING tokens
"""
# What is locked by somebody else, such as an erasure, is left for the next time.
_OLD = {
    "facts": """
        DELETE FROM facts WHERE (principal, id) IN (
            SELECT principal, id FROM facts WHERE updated_at < now() - $1::interval
            ORDER BY updated_at LIMIT $2 FOR UPDATE SKIP LOCKED
        )
    """,
    "digests": """
        DELETE FROM digests WHERE (session_ref, version) IN (
            SELECT d.session_ref, d.version
            FROM digests d JOIN sessions s ON s.id = d.session_ref
            WHERE d.created_at < now() - $1::interval AND d.version < s.digest_version
            ORDER BY d.created_at LIMIT $2 FOR UPDATE OF d SKIP LOCKED
        )
    """,
    "receipts": """
        DELETE FROM erasures WHERE id IN (
            SELECT id FROM erasures WHERE erased_at < now() - $1::interval
            ORDER BY erased_at LIMIT $2
        )
    """,
    "idempotency_keys": """
        DELETE FROM idempotency WHERE stored_at < now() - $1::interval AND key IN (
            SELECT key FROM idempotency WHERE stored_at < now() - $1::interval
            ORDER BY stored_at LIMIT $2
        )
    """,
}


class Upkeep(OnDatabase):
    """Looking at work, reviving it, counting tokens, deleting what is over age."""

    async def spend(self, tokens: int) -> int:
        """Add to the model tokens of the day (UTC), and return the store's sum."""
        async with self._db.anyone(Role.WORKER) as connection:
            return await connection.fetchval(_SPEND, tokens)

    async def work_summary(self) -> list[WorkCount]:
        """How much work there is, by kind and state."""
        async with self._db.anyone(Role.WORKER) as connection:
            rows = await connection.fetch(_SUMMARY)
        return [
            WorkCount(WorkKind(row["kind"]), WorkState(row["state"]), row["count"], row["oldest"])
            for row in rows
        ]

    async def work_items(self, states: Collection[WorkState], most: int) -> list[WorkItem]:
        """Work in these states, the longest due first."""
        async with self._db.anyone(Role.WORKER) as connection:
            rows = await connection.fetch(_ITEMS, list(states), most)
        return [WorkItem(row[0], WorkKind(row[1]), WorkState(row[2]), *row[3:]) for row in rows]

    async def retry_work(self, session_ref: int, kind: WorkKind) -> bool:
        """Make dead work due again, with all its retries. False where there is no such."""
        async with self._db.anyone(Role.WORKER) as connection:
            return await connection.execute(_RETRY, session_ref, kind) == "UPDATE 1"

    async def retain(self, retention: Retention, most: int) -> Mapping[str, int]:
        """Delete up to `most` of each kind of record that is over age. Returns how many."""
        ages = {
            "facts": timedelta(days=retention.facts_days),
            "digests": timedelta(days=retention.digests_days),
            "receipts": timedelta(days=retention.receipts_days),
            "idempotency_keys": timedelta(hours=retention.idempotency_hours),
        }
        deleted: dict[str, int] = {}
        for record, age in ages.items():
            if age:  # none: for ever
                async with self._db.everyone(Role.WORKER) as connection:
                    status = await connection.execute(_OLD[record], age, most)
                deleted[record] = int(status.rpartition(" ")[2])
        return deleted
