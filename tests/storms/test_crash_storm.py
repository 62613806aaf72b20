"""Replicas die at every step of everything, and nothing is lost, doubled or left behind."""

import asyncio
import itertools
import random
from collections import deque
from pathlib import Path

import pytest

from kaos_dev.crash_points import STEPS
from kaos_dev.model_server import Behaviour, ModelServer
from kaos_memory.tiers.memory import Owner

from ..service.storage.driving import fetch
from .clients import Clients, Ledger
from .final_state import check_conversation, names_anywhere, owners
from .replicas import ANYWHERE, Replica, stopped_after

WRITES = 500
RANDOM_KILLS = 8
DRAIN_SECONDS = 90
AGENTS = ("kaos://agent/ns/helper", "kaos://agent/ns/planner")
USERS = ("ada", "bo", "cy", "di", "ed")
ERASED = ("di", "ed")
# Every user has a session of his own and one whose id all share, with each of two agents.
SESSIONS = [
    Owner(user, agent, session)
    for user, agent in itertools.product(USERS, AGENTS)
    for session in (f"of-{user}", "shared")
]


@pytest.mark.slow
@pytest.mark.timeout(900)
async def test_accepted_turns_survive_crashes_at_every_step_and_are_extracted_once(
    environment: dict[str, str],
    models: ModelServer,
    admin_empty_dsn: str,
    luck: random.Random,
    tmp_path: Path,
):
    # So long that crashes from outside often hit the time that a model takes.
    models.script(Behaviour(endpoint="chat", times=None, delay_seconds=0.1))
    steps = deque(luck.sample([*STEPS, *[ANYWHERE] * RANDOM_KILLS], len(STEPS) + RANDOM_KILLS))
    pair = [Replica(environment, tmp_path / f"{name}.log", luck) for name in ("a", "b")]
    ledger, over = Ledger(), asyncio.Event()
    clients = Clients([replica.url for replica in pair], ledger, luck)
    async with stopped_after(*pair):
        await pair[0].live()
        await pair[0].pause()
        async with asyncio.TaskGroup() as running:
            for owner in SESSIONS:
                running.create_task(clients.talk(owner, WRITES // len(SESSIONS), over))
            running.create_task(clients.erase(ERASED, over))
            async with asyncio.TaskGroup() as crashing:
                for replica in pair:
                    crashing.create_task(replica.crash(steps))
            over.set()
            for replica in pair:
                await replica.live()
        await clients.aclose()
        await _drained(admin_empty_dsn)

    crashed = pair[0].crashes() + pair[1].crashes()
    print(
        f"{clients.writes} writes, {clients.asked_again} of them asked again; "
        f"{crashed.total()} crashes at steps, {sum(r.kills for r in pair)} from outside; "
        f"{len(ledger.erased)} erasures, {len(ledger.doubtful())} turns beside one"
    )
    assert crashed.keys() == set(STEPS)
    assert clients.writes >= WRITES
    gone, doubtful = ledger.gone(), ledger.doubtful()
    assert gone
    assert not await names_anywhere(admin_empty_dsn) & gone
    stored = await owners(admin_empty_dsn)
    for owner in SESSIONS:
        told = await check_conversation(admin_empty_dsn, owner) if owner in stored else []
        assert told == [name for name in ledger.of(owner) if name in told]
        assert set(ledger.of(owner)) - gone - doubtful <= set(told)


async def _drained(dsn: str) -> None:
    """Wait until all sessions were idle and no work is left, not even work that waits."""
    async with asyncio.timeout(DRAIN_SECONDS):
        while left := await fetch(dsn, "SELECT kind, dead, lease, last_error FROM work"):
            assert not any(row["dead"] for row in left), left
            await asyncio.sleep(0.2)
