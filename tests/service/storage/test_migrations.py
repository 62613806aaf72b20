"""Stores that an earlier version has filled."""

import pytest

from kaos_dev.embedded_postgres import EmbeddedPostgres
from kaos_memory.storage.postgres import schema
from kaos_memory.storage.protocol import WorkState
from kaos_memory.tiers.reach import Owners

from ..conftest import IDENTITY, StorageFactory
from .driving import ALICE, account, fetch, work_off

_FILLED = """
    INSERT INTO sessions (principal, agent, session, last_position, window_tokens, window_turns,
                          last_turn_at)
    VALUES ('alice', 'kaos://agent/ns/helper', 's-1', 2, 40, 2, now() - interval '1 day');
    INSERT INTO turns (session_ref, position, principal, agent, role, content, tokens, infer,
                       created_at)
    SELECT id, n, principal, agent, 'user', n::text, 20, true, now() - interval '1 day'
    FROM sessions, generate_series(1, 2) n;
    INSERT INTO facts (principal, agent, session, text, hash, embedding, first_position,
                       last_position, model, prompt_hash)
    VALUES ('alice', 'kaos://agent/ns/helper', 's-1', 'tea', md5('tea'),
            array_fill(0.5, ARRAY[8])::real[]::halfvec, 1, 1, 'm', 'p')
"""


@pytest.fixture
def backend() -> str:
    return "postgres"


async def test_a_store_of_the_first_version_keeps_everything_and_is_extracted(
    empty_dsn: str,
    make_storage: StorageFactory,
    postgres: EmbeddedPostgres,
    monkeypatch: pytest.MonkeyPatch,
):
    with monkeypatch.context() as before:
        before.setattr(schema, "HEAD", "0001")
        await schema.prepare(empty_dsn, "kaos_memory", IDENTITY)
    admin = postgres.dsn(empty_dsn.rpartition("/")[2])
    for statement in _FILLED.split(";"):
        await fetch(admin, statement)
    storage = make_storage(to=empty_dsn)
    await storage.open()
    [item] = await storage.work_items([WorkState.WAITING], 10)
    assert item.principal == ALICE.principal
    [conversation] = await storage.conversations(Owners("alice", ALICE.agent, "s-1"), 100)
    assert [turn.said_at for turn in conversation.turns] == [
        turn.created_at for turn in conversation.turns
    ]
    await work_off(storage)  # idle for a day
    (await account(admin, ALICE)).check()
    assert len(await storage.newest_facts(Owners("alice"), 10)) == 3
    found = await storage.search(Owners("alice"), "tea", [0.5] * 8, 1, None)
    assert [fact.text for fact in found] == ["tea"]
    await storage.close()
