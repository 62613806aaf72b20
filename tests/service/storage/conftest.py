"""What both storages do is tested on both; and a store with many tenants, for plans."""

import asyncpg
import pytest

from kaos_memory.storage.postgres.storage import PostgresStorage


@pytest.fixture(params=["postgres", "local"])
def backend(request: pytest.FixtureRequest) -> str:
    """The storage that a test runs on; a module about one of them overrides this."""
    return request.param


@pytest.fixture
async def crowded(storage: PostgresStorage, admin_dsn: str) -> PostgresStorage:
    """40 users with 250 facts each, and one session with a long history."""
    connection = await asyncpg.connect(admin_dsn)
    await connection.execute("""
        SET search_path TO kaos_memory, public;
        INSERT INTO facts (principal, agent, session, text, hash, embedding, first_position,
                           last_position, model, prompt_hash)
        SELECT 'user-' || u, 'agent-' || u % 3, 'session-' || u, 'fact ' || n, md5(n::text),
               (SELECT array_agg(random() + n % 7 + i) FROM generate_series(1, 8) i)::halfvec(8),
               1, 1, 'm', 'p'
        FROM generate_series(1, 40) u, generate_series(1, 250) n;
        INSERT INTO sessions (principal, agent, session, last_position, window_tokens,
                              window_turns, last_turn_at)
        SELECT 'user-' || u, 'agent', 'session', 100, 100, 100, now()
        FROM generate_series(1, 200) u;
        INSERT INTO turns (session_ref, position, principal, agent, role, content, tokens, infer)
        SELECT s.id, n, s.principal, s.agent, 'user', 'turn ' || n, 1, true
        FROM sessions s, generate_series(1, 100) n;
        INSERT INTO work (session_ref, kind, principal, agent, dead)
        SELECT id, 'fold', principal, agent, id % 5 > 0 FROM sessions;
        ANALYZE;
    """)
    await connection.close()
    return storage
