"""A real conversation for two users: none of its turns lost or doubled, one of the users erased."""

import asyncio
import re
from collections import Counter

import asyncpg
import httpx
import pytest

from kaos_dev.conversations import Session, locomo, locomo_path
from kaos_dev.model_server import ModelServer
from kaos_memory.tiers.memory import Owner

from ..service.storage.driving import TABLES, account, dump, fetch
from .conftest import until

AGENT = "kaos://agent/support/helper"
USERS = ("alice", "bob")

NAMELESS = ("alembic_version", "idempotency", "token_usage")
"""Tables that hold no name and no content of anybody: versions, keyed hashes, sums."""


async def say(client: httpx.AsyncClient, user: str, session: Session) -> None:
    """Play a session turn by turn."""
    for role, content in session.turns:
        answer = await client.post(
            "/v1/write",
            json={
                "attribution": {
                    "principal": user,
                    "agent_client_id": AGENT,
                    "session_id": session.id,
                },
                "turns": [{"role": role, "content": content}],
            },
        )
        assert answer.json()["accepted"] is True, answer.text


@pytest.mark.skipif(not locomo_path().exists(), reason="the data set LoCoMo is not here")
async def test_every_turn_of_a_long_conversation_is_kept_exactly_once(
    client: httpx.AsyncClient, admin_dsn: str, models: ModelServer
):
    sessions = locomo(1)
    assert sum(len(session.turns) for session in sessions) == 419
    for session in sessions:
        await asyncio.gather(*(say(client, user, session) for user in USERS))

    async def worked_off() -> bool:
        return not await fetch(admin_dsn, "SELECT 1 FROM work WHERE NOT waiting")

    await until(worked_off)
    for user in USERS:
        for session in sessions:
            found = await account(admin_dsn, Owner(user, AGENT, session.id))
            found.check()
            assert found.last == len(session.turns)
            assert not found.pending
            assert found.extracted == found.digested
    await _digests_cover_without_gap_or_overlap(admin_dsn)
    await _facts_know_where_they_came_from(admin_dsn, sessions)
    await _models_saw_every_turn_once(models, sessions, admin_dsn)
    await _windows_hold_the_latest_turns(client, sessions)
    await _forgetting_one_leaves_the_other(client, admin_dsn)


async def _digests_cover_without_gap_or_overlap(admin_dsn: str) -> None:
    rows = await fetch(
        admin_dsn,
        """
        SELECT first_position, last_position, version, lag(last_position) OVER per AS before
        FROM digests WINDOW per AS (PARTITION BY session_ref ORDER BY version)
        """,
    )
    assert rows
    for row in rows:
        if row["before"] is not None:
            assert row["first_position"] == row["before"] + 1


async def _facts_know_where_they_came_from(admin_dsn: str, sessions: list[Session]) -> None:
    rows = await fetch(
        admin_dsn,
        """
        SELECT f.principal, f.agent, f.session, f.text, f.first_position, f.last_position,
               s.extracted_through
        FROM facts f JOIN sessions s USING (principal, agent, session)
        """,
    )
    everywhere = {(user, AGENT, session.id) for user in USERS for session in sessions}
    known = {(row["principal"], row["agent"], row["session"]) for row in rows}
    assert known <= everywhere
    assert {user for user, _, _ in known} == set(USERS)
    assert all(
        1 <= row["first_position"] <= row["last_position"] <= row["extracted_through"]
        for row in rows
    )
    # Mem0 leaves out what another session's fact says already, if that is among the nearest.
    texts = {user: {row["text"] for row in rows if row["principal"] == user} for user in USERS}
    assert texts["alice"] == texts["bob"]
    assert len(texts["bob"]) > 400


async def _models_saw_every_turn_once(
    models: ModelServer, sessions: list[Session], admin_dsn: str
) -> None:
    """Each turn that left a window was sent to each of the two jobs once, for each user."""
    prompts = [request.prompt for request in models.requests.all("chat")]
    new_messages = re.compile(
        r"^## New Messages\n(.*)\n\n## Observation Date\n", re.DOTALL | re.MULTILINE
    )
    jobs = {
        "fold": re.compile(r"<turns>(.*)</turns>", re.DOTALL),
        "extract": new_messages,
    }
    rows = await fetch(admin_dsn, "SELECT session, evicted_through FROM sessions")
    evicted = {row["session"]: row["evicted_through"] for row in rows}
    contents = Counter(content for session in sessions for _, content in session.turns)
    for job, section in jobs.items():
        sent = [found[1] for prompt in prompts if (found := section.search(prompt))]
        lines = Counter(line for text in sent for line in text.splitlines())
        checked = 0
        for session in sessions:
            for content in [turn[1] for turn in session.turns][: evicted[session.id]]:
                if contents[content] > 1 or not re.fullmatch(r"[\w ,.!?']{30,}", content):
                    continue  # only what stands in a prompt letter by letter can be counted
                assert sum(n for line, n in lines.items() if line.endswith(content)) == 2, (
                    job,
                    content,
                )
                checked += 1
        assert checked > 100


async def _windows_hold_the_latest_turns(
    client: httpx.AsyncClient, sessions: list[Session]
) -> None:
    session = sessions[-1]
    answer = await client.post(
        "/v1/recall",
        json={
            "scope": {
                "level": "session",
                "principal": "bob",
                "agent_client_id": AGENT,
                "session_id": session.id,
            },
            "query": "What does Melanie paint?",
        },
    )
    found = answer.json()
    window = [tuple(turn) for turn in found["short_term"]["window"]]
    assert window == list(session.turns[-len(window) :])
    assert found["medium_term"]["summary"]
    assert found["long_term"]["facts"]
    assert found["degraded"] is False


async def _forgetting_one_leaves_the_other(client: httpx.AsyncClient, admin_dsn: str) -> None:
    def of_bob(rows: dict[str, list[str]]) -> dict[str, list[str]]:
        return {table: [row for row in rows[table] if "bob" in row] for table in TABLES}

    before = await dump(admin_dsn)
    scope = {"level": "user", "principal": "alice"}
    answer = (await client.post("/v1/forget", json={"scope": scope})).json()
    assert answer["forgotten"] is True
    after = await dump(admin_dsn)
    assert of_bob(after) == of_bob(before)
    for table in TABLES:
        others = [row for row in after[table] if "bob" not in row]
        assert not [row for row in others if "alice" in row], table
        if table not in ("epochs", "erasures", "meta"):
            assert not others, table
    assert len(after["erasures"]) == 1
    await _not_one_table_more(admin_dsn)


async def _not_one_table_more(admin_dsn: str) -> None:
    """The scan above saw every table that there is."""
    connection = await asyncpg.connect(admin_dsn)
    rows = await connection.fetch(
        "SELECT relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
        "WHERE nspname NOT IN ('pg_catalog', 'information_schema', 'pg_toast') "
        "AND relkind IN ('r', 'p', 'm') AND NOT relispartition"
    )
    await connection.close()
    assert {row["relname"] for row in rows} == {*TABLES, *NAMELESS}
