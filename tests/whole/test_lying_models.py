"""Models that lie: no fact is lost, none is claimed, and work dies of wrong answers alone.

Users talk all at once, each with a fault of his own; then the faults end.
"""

import asyncio
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest

from kaos_dev.embedded_postgres import EmbeddedPostgres
from kaos_dev.hasty_service import CHAT_SECONDS
from kaos_dev.model_server import Behaviour, ModelServer
from kaos_dev.service_process import ServiceProcess
from kaos_memory.tiers.memory import Owner

from ..service.storage.driving import Account, account, fetch
from .conftest import OWNER, store_environment, until

AGENT = "kaos://agent/support/helper"
TURNS = 24
MAX_RETRIES = 1
DATABASE = "lying_models"

Lie = Mapping[str, Any]
"""What the chat model does instead of answering, as fields of a `Behaviour`."""

WRONG: dict[str, Lie] = {
    "prose": {"content": "Sure! The user told me about several fields and their harvest."},
    "truncated JSON": {"truncated": True},
    "null": {"content": "null"},
    "another shape": {"content": '{"facts": [{"text": "The harvest was good"}]}'},
    "no text at all": {
        "status": 200,
        "body": {"choices": [{"message": {"content": None}, "finish_reason": "stop"}]},
    },
    "a refusal of the prompt": {"status": 400},
    "no embeddings after a good chat": {
        "endpoint": "embeddings",
        "status": 200,
        "body": {"object": "list", "data": []},
    },
}
AWAY: dict[str, Lie] = {
    "429 with Retry-After": {"status": 429, "retry_after": "1"},
    "500": {"status": 500},
    "a hang": {"hang": True},
    "a cut connection": {"drop": True},
    "embeddings that fail after a good chat": {"endpoint": "embeddings", "status": 500},
}
ODD: dict[str, Lie] = {
    "fenced JSON": {"edited": (re.compile(r"\A(.*)\Z", re.DOTALL), r"```json\n\1\n```")},
    "lone surrogates": {"edited": (re.compile("said that"), r"said that\\ud800")},
    "a slow answer": {"delay_seconds": CHAT_SECONDS / 2},
}
LIES = WRONG | AWAY | ODD


@dataclass
class Seen:
    """One user's memory at one moment."""

    account: Account
    folded_by_digests: int
    """The last position that a digest covers."""
    extraction: Mapping[str, Any]
    """The row of its work; empty where none is left."""
    facts: Sequence[str]


@dataclass
class Story:
    """All users' memories, while the models lied and after."""

    during: dict[str, Seen] = field(default_factory=dict[str, Seen])
    after: dict[str, Seen] = field(default_factory=dict[str, Seen])


def marker(name: str) -> str:
    """What this user's sentences hold, and nobody else's."""
    return f"q{list(LIES).index(name):02}q"


def said(name: str) -> list[str]:
    """Words that each are in one sentence of this user."""
    return [f"{marker(name)}{number:02}" for number in range(TURNS)]


def owner(name: str) -> Owner:
    return Owner(f"user-{marker(name)}", AGENT, "s-1")


def behaviour(name: str, lie: Lie) -> Behaviour:
    # Of the embeddings only those of facts: the ones before the chat hold the turns as they were.
    containing = "said that The field of " if "endpoint" in lie else ""
    usual = {"endpoint": "chat", "times": None, "containing": containing + marker(name)}
    return Behaviour.model_validate({**usual, **lie})


@pytest.fixture(scope="module")
async def story(
    postgres: EmbeddedPostgres, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Story]:
    postgres.create_database(DATABASE, owner=OWNER)
    admin, log = postgres.dsn(DATABASE), tmp_path_factory.mktemp("lies") / "log"
    with ModelServer() as models:
        environment = store_environment(postgres.dsn(DATABASE, OWNER), models) | {
            "KAOS_MEMORY_LONG_TERM_EXTRACTION_CONCURRENCY": "16",
            "KAOS_MEMORY_LONG_TERM_EXTRACTION_MAX_RETRIES": str(MAX_RETRIES),
        }
        models.script(*(behaviour(name, lie) for name, lie in LIES.items()))
        with ServiceProcess(environment, log, module="kaos_dev.hasty_service") as process:
            async with httpx.AsyncClient(base_url=process.url, timeout=30) as client:
                yield await _played(client, models, environment, admin)
    postgres.drop_database(DATABASE)


async def _played(
    client: httpx.AsyncClient, models: ModelServer, environment: Mapping[str, str], admin: str
) -> Story:
    story = Story()
    for name in LIES:
        content = "The field of {} gave a good harvest of wheat this year."
        turns = [{"role": "user", "content": content.format(word)} for word in said(name)]
        body = {"attribution": _named(name), "turns": turns}
        written = await client.post("/v1/write", json=body)
        assert (written.status_code, written.json()["accepted"]) == (202, True)

    async def all_met() -> bool:
        return all([await _met(admin, name) for name in LIES])

    await until(all_met)
    story.during = {name: await _seen(client, admin, name) for name in LIES}
    models.reset()
    await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-m", "kaos_memory.commands", "work", "retry", "--all-dead"],
        env=dict(environment),
        check=True,
        stdout=subprocess.DEVNULL,
    )
    for name in LIES:
        scope = {"level": "session"} | _named(name)
        assert (await client.post("/v1/sessions/close", json={"scope": scope})).is_success

    async def worked_off() -> bool:
        return not await fetch(admin, "SELECT 1 FROM work WHERE NOT waiting")

    await until(worked_off)
    story.after = {name: await _seen(client, admin, name) for name in LIES}
    return story


async def _met(admin: str, name: str) -> bool:
    """Whether the user's extraction has met its fault so often as it takes."""
    work = await _extraction(admin, name)
    if name in WRONG:
        return work["dead"]
    if name in AWAY:
        return work["attempts"] > MAX_RETRIES + 1
    return not work or work["waiting"]


async def _extraction(admin: str, name: str) -> Mapping[str, Any]:
    found = await fetch(
        admin,
        "SELECT * FROM work WHERE kind = 'extract' AND principal = $1",
        owner(name).principal,
    )
    return found[0] if found else {}


async def _seen(client: httpx.AsyncClient, admin: str, name: str) -> Seen:
    scope = {"level": "user", "principal": owner(name).principal}
    body = {"scope": scope, "include": ["long_term"]}
    listed = (await client.post("/v1/list", json=body)).json()
    assert listed["degraded"] is False
    [digested] = await fetch(
        admin,
        "SELECT coalesce(max(last_position), 0) AS through FROM digests WHERE principal = $1",
        owner(name).principal,
    )
    return Seen(
        account=await account(admin, owner(name)),
        folded_by_digests=digested["through"],
        extraction=await _extraction(admin, name),
        facts=[fact["memory"] for fact in listed["long_term"]["facts"]],
    )


def _named(name: str) -> dict[str, str]:
    who = owner(name)
    return {
        "principal": who.principal,
        "agent_client_id": who.agent,
        "session_id": who.session,
    }


@pytest.mark.parametrize("name", WRONG | AWAY)
def test_nothing_is_claimed_and_nothing_lost_while_the_model_lies(story: Story, name: str):
    seen = story.during[name]
    seen.account.check()
    assert seen.account.rows == list(range(1, TURNS + 1))
    assert seen.account.extracted == []
    assert seen.facts == []
    assert seen.folded_by_digests == len(seen.account.digested)


@pytest.mark.parametrize("name", WRONG)
def test_work_is_dead_after_its_retries_of_wrong_answers(story: Story, name: str):
    work = story.during[name].extraction
    assert (work["dead"], work["failures"]) == (True, MAX_RETRIES + 1)
    assert marker(name) not in work["last_error"]


@pytest.mark.parametrize("name", AWAY)
def test_work_does_not_die_of_a_model_that_is_away(story: Story, name: str):
    work = story.during[name].extraction
    assert work["attempts"] > MAX_RETRIES + 1
    assert (work["dead"], work["failures"]) == (False, 0)


@pytest.mark.parametrize("name", ODD)
def test_an_odd_answer_is_taken_for_what_it_says(story: Story, name: str):
    seen = story.during[name]
    seen.account.check()
    told = [word for fact in seen.facts for word in said(name) if word in fact]
    assert told == said(name)[: len(seen.account.extracted)] != []


@pytest.mark.parametrize("name", LIES)
def test_afterwards_every_sentence_is_a_fact_exactly_once(story: Story, name: str):
    seen = story.after[name]
    seen.account.check()
    assert seen.account.extracted == list(range(1, TURNS + 1))
    assert seen.folded_by_digests == len(seen.account.digested) > 0
    assert len(seen.facts) == TURNS
    assert [[word for word in said(name) if word in fact] for fact in seen.facts] == [
        [word] for word in said(name)
    ]


@pytest.mark.slow
async def test_an_answer_of_half_a_minute_is_waited_for_and_asked_for_once(
    client: httpx.AsyncClient, models: ModelServer, admin_dsn: str
):
    models.script(Behaviour(endpoint="chat", times=None, delay_seconds=35))
    content = "The field of {} gave a good harvest of wheat this year."
    turns = [{"role": "user", "content": content.format(number)} for number in range(TURNS)]
    who = {"principal": "alice", "agent_client_id": AGENT, "session_id": "s-1"}
    await client.post("/v1/write", json={"attribution": who, "turns": turns})

    async def worked_off() -> bool:
        return not await fetch(admin_dsn, "SELECT 1 FROM work WHERE NOT waiting")

    await until(worked_off, seconds=90)
    found = await account(admin_dsn, Owner("alice", AGENT, "s-1"))
    found.check()
    facts = await fetch(admin_dsn, "SELECT text FROM facts")
    assert len(facts) == len(found.extracted) == len(found.digested) > 0
    assert len(models.requests.all("chat")) == 2  # one digest, one extraction
