"""SIGTERM: the process ends in time, and what it was doing is due for another."""

import asyncio
import signal
import time
from pathlib import Path

import httpx

from kaos_dev.model_server import ModelServer
from kaos_dev.model_server.script import Behaviour
from kaos_dev.service_process import ServiceProcess
from kaos_memory.tiers.memory import Owner

from ..service.storage.driving import account, fetch
from .conftest import until

AGENT = "kaos://agent/support/helper"
DRAIN_SECONDS = 2


async def test_a_service_that_is_stopped_during_a_model_call_gives_its_work_back(
    environment: dict[str, str],
    admin_dsn: str,
    models: ModelServer,
    tmp_path: Path,
):
    log = tmp_path / "log"
    environment["KAOS_MEMORY_SERVER_DRAIN_SECONDS"] = str(DRAIN_SECONDS)
    models.script(Behaviour(endpoint="chat", times=None, hang=True))
    process = ServiceProcess(environment, log)
    await asyncio.to_thread(process.start)
    async with httpx.AsyncClient(base_url=process.url) as client:
        for number in range(40):
            turn = {"role": "user", "content": f"Sentence number {number} is about the weather."}
            who = {"principal": "alice", "agent_client_id": AGENT, "session_id": "s-1"}
            answer = await client.post("/v1/write", json={"attribution": who, "turns": [turn]})
            assert answer.json()["accepted"] is True

    async def both_leased() -> bool:
        return len(await fetch(admin_dsn, "SELECT 1 FROM work WHERE lease IS NOT NULL")) == 2

    await until(both_leased)
    started = time.monotonic()
    code = await asyncio.to_thread(process.stop)
    assert code in (0, -signal.SIGTERM)  # the server ends by the signal that it obeyed
    assert time.monotonic() - started < DRAIN_SECONDS + 5
    rows = await fetch(
        admin_dsn, "SELECT 1 FROM work WHERE lease IS NULL AND NOT waiting AND run_after <= now()"
    )
    assert len(rows) == 2
    found = await account(admin_dsn, Owner("alice", AGENT, "s-1"))
    found.check()
    assert found.last == 40

    models.reset()
    successor = ServiceProcess(environment, log)
    await asyncio.to_thread(successor.start)

    async def worked_off() -> bool:
        return not await fetch(admin_dsn, "SELECT 1 FROM work WHERE NOT waiting")

    await until(worked_off)
    await asyncio.to_thread(successor.stop)
    found = await account(admin_dsn, Owner("alice", AGENT, "s-1"))
    found.check()
    assert found.extracted == found.digested != []
