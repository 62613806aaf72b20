"""Our service under measurement."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import asyncpg

from bench import bulk
from bench.known_facts import EMBEDDING_MODEL, Tenant
from bench.processes import ModelEndpoint, Process
from bench.subjects import CROWD_TURNS, WRITTEN
from bench.wire import AGENT, Owner
from kaos_dev.service_process import ServiceProcess
from kaos_memory.tiers import lexical

CHAT_MODEL = "gpt-4o-mini"

_OF_SESSIONS = ("turns", "digests", "work")
_COLUMNS = (
    *("principal", "agent", "session", "text", "hash", "embedding", "terms", "words", "cues"),
    *("speaker", "first_position", "last_position", "model", "prompt_hash"),
)
_MADE = ("user", 1, 12, "bench", "bench")
"""The last of the columns: as if each was extracted from a dozen turns."""


@dataclass
class Ours:
    """The service of this repository; row-level security is on, and checked to be."""

    process: Process
    admin: asyncpg.Connection
    name: str = "ours"
    forgotten: bytes = b'"residue":0'

    async def seed_facts(self, tenants: Sequence[Tenant]) -> None:
        """Copy as the superuser, past row-level security."""
        async with bulk.vector_indexes_rebuilt(self.admin, "kaos_memory.facts"):
            for tenant in tenants:
                owner = tenant.owner
                named = (owner.principal, owner.agent, owner.session)
                vectors = bulk.half_vectors(tenant.vectors())
                await self.admin.copy_records_to_table(
                    "facts",
                    schema_name="kaos_memory",
                    columns=_COLUMNS,
                    records=[
                        (*named, text, bulk.text_hash(text), vector, *_of_words(text), *_MADE)
                        for text, vector in zip(tenant.texts, vectors, strict=True)
                    ],
                )
        await self.admin.execute("VACUUM ANALYZE kaos_memory.facts")

    async def seed_crowd(self, rows: int, contents: Sequence[str]) -> None:
        """Insert sessions whose turns are in the window, and extracted already."""
        await self.admin.execute(
            """
            INSERT INTO kaos_memory.sessions (principal, agent, session, last_position,
                window_tokens, window_turns, extracted_through, last_turn_at)
            SELECT 'crowd-' || n % 500, $3, 'crowd-' || n, $2, 60 * $2, $2, $2, now()
            FROM generate_series(1, $1::integer / $2::integer) n
            """,
            rows,
            CROWD_TURNS,
            AGENT,
        )
        await self.admin.execute(
            """
            INSERT INTO kaos_memory.turns (session_ref, position, principal, agent, role, content,
                tokens, infer)
            SELECT s.id, p, s.principal, s.agent,
                CASE WHEN p % 2 = 1 THEN 'user' ELSE 'assistant' END,
                ($2::text[])[1 + (s.id + p) % cardinality($2::text[])], 60, true
            FROM kaos_memory.sessions s, generate_series(1, $1::integer) p
            WHERE s.session LIKE 'crowd-%'
            """,
            CROWD_TURNS,
            contents,
        )
        await self.admin.execute("VACUUM ANALYZE kaos_memory.turns, kaos_memory.sessions")

    async def facts_left(self, owner: Owner) -> int:
        """Count a user's facts."""
        left: int | None = await self.admin.fetchval(
            "SELECT count(*) FROM kaos_memory.facts WHERE principal = $1", owner.principal
        )
        return left or 0

    async def remove_written(self) -> None:
        """Delete what the write measure stored."""
        written = f"SELECT id FROM kaos_memory.sessions WHERE session LIKE '{WRITTEN}%'"
        for table in _OF_SESSIONS:
            await self.admin.execute(
                f"DELETE FROM kaos_memory.{table} WHERE session_ref IN ({written})"
            )
        await self.admin.execute(
            f"DELETE FROM kaos_memory.sessions WHERE session LIKE '{WRITTEN}%'"
        )
        for table in (*_OF_SESSIONS, "sessions"):
            await self.admin.execute(f"VACUUM ANALYZE kaos_memory.{table}")

    async def prove_row_security(self, login: str) -> None:
        """Raise unless row-level security binds the login on every table with tenants' data."""
        forced = await self.admin.fetchval(
            """
            SELECT bool_and(relrowsecurity AND relforcerowsecurity) AND count(*) = 5
            FROM pg_class WHERE relnamespace = 'kaos_memory'::regnamespace
                AND relname IN ('sessions', 'turns', 'digests', 'facts', 'work')
            """
        )
        bound = await self.admin.fetchval(
            "SELECT NOT (rolsuper OR rolbypassrls) FROM pg_roles WHERE rolname = $1", login
        )
        if not (forced and bound):
            raise RuntimeError("row-level security is not on: the figures would not count")


def _of_words(text: str) -> tuple[bytes, int, int]:
    """What its ranking by words reads, so that this half of a recall costs what it costs."""
    return lexical.terms(text), lexical.words(text), int(lexical.cues(text))


def our_service(dsn: str, models: ModelEndpoint, log: Path) -> ServiceProcess:
    """Our service on PostgreSQL, with defaults for all else."""
    environment = {"KAOS_MEMORY_STORAGE_TYPE": "external", "KAOS_MEMORY_EXTERNAL_DSN": dsn}
    for role, model in (("SUMMARIZATION", CHAT_MODEL), ("EMBEDDING", EMBEDDING_MODEL)):
        environment |= {
            f"KAOS_MEMORY_MODELS_{role}_BASE_URL": models.url,
            f"KAOS_MEMORY_MODELS_{role}_MODEL": model,
            f"KAOS_MEMORY_MODELS_{role}_API_KEY": models.api_key,
        }
    return ServiceProcess(environment, log)
