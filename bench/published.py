"""The published package under measurement, in its own virtual environment."""

import json
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import asyncpg

from bench import bulk
from bench.known_facts import Tenant
from bench.processes import Process
from bench.subjects import CROWD_TURNS, WRITTEN
from bench.wire import AGENT, Owner
from kaos_dev import peer

NAME = f"kaos-memory-{peer.VERSION}"

_COLLECTION = "kaos_memory"
"""Its default: the name of the table of facts, and of the group that keys begin with."""


@dataclass
class Published:
    """The published package."""

    process: Process
    admin: asyncpg.Connection
    name: str = NAME
    forgotten: bytes = b'"forgotten":true,"degraded":false'

    async def seed_facts(self, tenants: Sequence[Tenant]) -> None:
        """Copy rows as its engine makes them."""
        async with bulk.vector_indexes_rebuilt(self.admin, _COLLECTION):
            for tenant in tenants:
                await self.admin.copy_records_to_table(
                    _COLLECTION,
                    columns=("id", "vector", "payload"),
                    records=list(
                        zip(
                            (uuid.uuid4() for _ in range(tenant.count)),
                            bulk.vectors(tenant.vectors()),
                            map(json.dumps, _payloads(tenant)),
                            strict=True,
                        )
                    ),
                )
        await self.admin.execute(f"VACUUM ANALYZE {_COLLECTION}")

    async def seed_crowd(self, rows: int, contents: Sequence[str]) -> None:
        """Insert turns, and the owners of their sessions."""
        sessions = "FROM generate_series(1, $1::integer / $2::integer) n"
        await self.admin.execute(
            f"""
            INSERT INTO short_term_memory_window
                (scope_key, role, content, created_at, pending_summary)
            SELECT $4 || n, CASE WHEN p % 2 = 1 THEN 'user' ELSE 'assistant' END,
                ($3::text[])[1 + (n + p) % cardinality($3::text[])],
                extract(epoch FROM now()), 0
            {sessions}, generate_series(1, $2::integer) p
            """,
            rows,
            CROWD_TURNS,
            contents,
            f"kaos_group:{_COLLECTION}|run:crowd-",
        )
        await self.admin.execute(
            f"""
            INSERT INTO conversational_memory_attribution (scope_key, owner_key)
            SELECT $3 || n, owner {sessions}, LATERAL (VALUES
                ('user_id:crowd-' || n % 500), ('agent_id:' || $4), ('kaos_group:' || $5)
            ) AS owners (owner)
            """,
            rows,
            CROWD_TURNS,
            f"kaos_group:{_COLLECTION}|run:crowd-",
            AGENT,
            _COLLECTION,
        )
        await self.admin.execute(
            "VACUUM ANALYZE short_term_memory_window, conversational_memory_attribution"
        )

    async def facts_left(self, owner: Owner) -> int:
        """Count a user's facts."""
        left: int | None = await self.admin.fetchval(
            f"SELECT count(*) FROM {_COLLECTION} WHERE payload->>'user_id' = $1", owner.principal
        )
        return left or 0

    async def remove_written(self) -> None:
        """Delete what the write measure stored."""
        for table in ("short_term_memory_window", "conversational_memory_attribution"):
            await self.admin.execute(f"DELETE FROM {table} WHERE scope_key LIKE '%{WRITTEN}%'")
            await self.admin.execute(f"VACUUM ANALYZE {table}")


def _payloads(tenant: Tenant) -> list[dict[str, str]]:
    now, owner = datetime.now(UTC).isoformat(), tenant.owner
    return [
        {
            "data": text,
            "hash": bulk.text_hash(text),
            "text_lemmatized": text.lower(),
            "created_at": now,
            "updated_at": now,
            "user_id": owner.principal,
            "agent_id": owner.agent,
            "kaos_run": owner.session,
        }
        for text in tenant.texts
    ]
