"""What is measured beside each other: our service and the published one, each as it comes.

Both run with their default settings apart from the DSN, the model endpoint and its key; the
models' names are the published service's defaults. Each has a database of its own on the same
server, owned by an ordinary role.
"""

import hashlib
import json
import uuid
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

import asyncpg

from bench.known_facts import EMBEDDING_MODEL, KnownFacts
from bench.load import Address
from bench.peer_process import PeerProcess
from bench.processes import ModelEndpoint
from kaos_dev import peer
from kaos_dev.embedded_postgres import EmbeddedPostgres
from kaos_dev.service_process import ServiceProcess

CHAT_MODEL = "gpt-4o-mini"
WRITTEN = "written-"
"""Sessions of the write measure begin so: they are removed again after each run."""

_LOGIN = "bench"
_ROWS_AT_ONCE = 500


class Subject(Protocol):
    """A running service under measurement."""

    name: str
    database: str

    @property
    def address(self) -> Address:
        """Where it listens."""
        ...

    @property
    def pid(self) -> int:
        """Its process, for a profiler."""
        ...

    async def seed_facts(self, admin: asyncpg.Connection, known: KnownFacts) -> None:
        """Put facts where its extraction would have put them."""
        ...

    async def remove_written(self, admin: asyncpg.Connection) -> None:
        """Bring the tables back to what they were before the write measure."""
        ...


@dataclass
class Ours:
    """The service of this repository; row-level security is on, and checked to be."""

    process: ServiceProcess
    database: str
    name: str = "ours"

    @property
    def address(self) -> Address:
        """Where it listens."""
        return Address("127.0.0.1", self.process.port)

    @property
    def pid(self) -> int:
        """Its process."""
        return self.process.pid

    async def seed_facts(self, admin: asyncpg.Connection, known: KnownFacts) -> None:
        """Insert as the superuser, past row-level security."""
        await _insert(
            admin,
            """
            INSERT INTO kaos_memory.facts (principal, agent, session, text, hash, embedding,
                first_position, last_position, model, prompt_hash)
            SELECT $1, $2, $3, text, md5(text), embedding::halfvec, 1, 1, 'bench', 'bench'
            FROM unnest($4::text[], $5::text[]) AS new (text, embedding)
            """,
            known,
        )
        await admin.execute("VACUUM ANALYZE kaos_memory.facts")

    async def remove_written(self, admin: asyncpg.Connection) -> None:
        """Delete what the write measure stored."""
        written = f"SELECT id FROM kaos_memory.sessions WHERE session LIKE '{WRITTEN}%'"
        await admin.execute(f"DELETE FROM kaos_memory.turns WHERE session_ref IN ({written})")
        await admin.execute(f"DELETE FROM kaos_memory.sessions WHERE session LIKE '{WRITTEN}%'")
        await admin.execute("VACUUM ANALYZE kaos_memory.turns, kaos_memory.sessions")

    async def prove_row_security(self, admin: asyncpg.Connection) -> None:
        """Raise unless row-level security binds the login on every table with tenants' data."""
        forced = await admin.fetchval(
            """
            SELECT bool_and(relrowsecurity AND relforcerowsecurity) AND count(*) = 5
            FROM pg_class WHERE relnamespace = 'kaos_memory'::regnamespace
                AND relname IN ('sessions', 'turns', 'digests', 'facts', 'work')
            """
        )
        bound = await admin.fetchval(
            "SELECT NOT (rolsuper OR rolbypassrls) FROM pg_roles WHERE rolname = $1", _LOGIN
        )
        if not (forced and bound):
            raise RuntimeError("row-level security is not on: the figures would not count")


@dataclass
class Published:
    """The published package, in its own virtual environment."""

    process: PeerProcess
    database: str
    name: str = f"kaos-memory-{peer.VERSION}"

    @property
    def address(self) -> Address:
        """Where it listens."""
        return Address("127.0.0.1", self.process.port)

    @property
    def pid(self) -> int:
        """Its process."""
        return self.process.pid

    async def seed_facts(self, admin: asyncpg.Connection, known: KnownFacts) -> None:
        """Insert rows as its engine makes them."""
        now = datetime.now(UTC).isoformat()
        owner = known.owner
        payloads = [
            {
                "data": text,
                "hash": hashlib.md5(text.encode(), usedforsecurity=False).hexdigest(),
                "text_lemmatized": text.lower(),
                "created_at": now,
                "updated_at": now,
                "user_id": owner.principal,
                "agent_id": owner.agent,
                "kaos_run": owner.session,
            }
            for text in known.texts
        ]
        vectors = _as_text(known)
        for first in range(0, len(payloads), _ROWS_AT_ONCE):
            some = slice(first, first + _ROWS_AT_ONCE)
            await admin.execute(
                """
                INSERT INTO kaos_memory (id, vector, payload)
                SELECT id, vector::vector, payload
                FROM unnest($1::uuid[], $2::text[], $3::jsonb[]) AS new (id, vector, payload)
                """,
                [uuid.uuid4() for _ in payloads[some]],
                vectors[some],
                [json.dumps(payload) for payload in payloads[some]],
            )
        await admin.execute("VACUUM ANALYZE kaos_memory")

    async def remove_written(self, admin: asyncpg.Connection) -> None:
        """Delete what the write measure stored."""
        tables = ("short_term_memory_window", "conversational_memory_attribution")
        for table in tables:
            await admin.execute(f"DELETE FROM {table} WHERE scope_key LIKE '%{WRITTEN}%'")
            await admin.execute(f"VACUUM ANALYZE {table}")


@contextmanager
def running(
    postgres: EmbeddedPostgres, models: ModelEndpoint, logs: Path
) -> Generator[tuple[Ours, Published]]:
    """Both services, ready."""
    postgres.create_owner(_LOGIN, "not-a-secret")
    for database in ("ours", "published"):
        postgres.create_database(database, owner=_LOGIN)
    ours = ServiceProcess(_our_environment(postgres.dsn("ours", _LOGIN), models), logs / "ours.log")
    published = PeerProcess(postgres.dsn("published", _LOGIN), models, logs)
    with ours, published:
        yield Ours(ours, "ours"), Published(published, "published")


def _our_environment(dsn: str, models: ModelEndpoint) -> dict[str, str]:
    environment = {"KAOS_MEMORY_STORAGE_TYPE": "external", "KAOS_MEMORY_EXTERNAL_DSN": dsn}
    for role, model in (("SUMMARIZATION", CHAT_MODEL), ("EMBEDDING", EMBEDDING_MODEL)):
        environment |= {
            f"KAOS_MEMORY_MODELS_{role}_BASE_URL": models.url,
            f"KAOS_MEMORY_MODELS_{role}_MODEL": model,
            f"KAOS_MEMORY_MODELS_{role}_API_KEY": models.api_key,
        }
    return environment


async def _insert(admin: asyncpg.Connection, statement: str, known: KnownFacts) -> None:
    owner, vectors = known.owner, _as_text(known)
    for first in range(0, len(vectors), _ROWS_AT_ONCE):
        some = slice(first, first + _ROWS_AT_ONCE)
        texts: Sequence[str] = known.texts[some]
        await admin.execute(
            statement, owner.principal, owner.agent, owner.session, texts, vectors[some]
        )


def _as_text(known: KnownFacts) -> list[str]:
    return [f"[{','.join(map(repr, row.tolist()))}]" for row in known.vectors]
