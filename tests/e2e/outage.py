"""The database goes away under load, for a moment and for two minutes; the service stays."""

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import httpx

from tests.e2e import target
from tests.e2e.failure import check
from tests.e2e.load import RECALL_SECONDS, Load
from tests.e2e.store import Store, attribution

_AWAY_SECONDS = 120
_ROUND_SECONDS = 5
"""Between two rounds of questions to each replica."""
_RECOVERY_SECONDS = 30
"""From the database's readiness until both replicas are ready: their probes ask every 5 s."""
_WRITES = 60
"""Accepted before a fault, and again after it."""
_NOBODY = "nobody"
"""Whose turns are never accepted, because they are sent while there is no database."""

_TERMINATE = (
    "SELECT pg_terminate_backend(pid) AS ended FROM pg_stat_activity "
    "WHERE datname = current_database() AND pid <> pg_backend_pid()"
)


async def connections_terminated(store: Store) -> str:
    """End every connection of the store's database at once, while clients are at work."""
    before = store.restarts()
    async with store.client() as client:
        load = Load(client, "dave")
        async with load.running():
            await load.progress(_WRITES)
            ended = await asyncio.to_thread(store.rows, _TERMINATE)
            check(len(ended) >= len(before), f"only {len(ended)} connections to end")
            check(all(row["ended"] for row in ended), "a connection was not ended")
            await load.progress(_WRITES)
        accounted = await load.account(store)
    await asyncio.to_thread(target.until, "readiness", lambda: _all_ready(store, before))
    _check_not_restarted(store, before)
    return f"{len(ended)} ended; {accounted}; {load.summary()}"


async def database_away(store: Store) -> str:
    """Take the database away for two minutes: nothing accepted is lost, nothing is restarted."""
    before = store.restarts()
    async with store.client() as client:
        load = Load(client, "erin")
        async with load.running():
            await load.progress(_WRITES)
            async with _without_database(store):
                rounds = await _honest_rounds(store, list(before))
                ready = await asyncio.to_thread(store.ready_replicas)
                check(ready == 0, f"{ready} replicas count as ready without a database")
            recovery = await asyncio.to_thread(
                target.until,
                "readiness of all replicas",
                lambda: _all_ready(store, before),
                _RECOVERY_SECONDS,
            )
            await load.progress(_WRITES)
        accounted = await load.account(store)
    _check_not_restarted(store, before)
    kept = store.rows(f"SELECT count(*) FROM sessions WHERE principal = '{_NOBODY}'")
    check(kept[0]["count"] == 0, "what was not accepted is stored")
    return f"{rounds}; ready again after {recovery:.0f} s; {accounted}; {load.summary()}"


@asynccontextmanager
async def _without_database(store: Store) -> AsyncGenerator[None]:
    """Stop the database; the end of the block starts it again and waits until it is ready."""
    await asyncio.to_thread(store.scale_database, 0)
    try:
        yield
    finally:
        await asyncio.to_thread(store.scale_database, 1)


async def _honest_rounds(store: Store, pods: list[str]) -> str:
    """Ask each replica by itself: the Service sends nothing to those that are not ready."""
    ends = time.monotonic() + _AWAY_SECONDS
    rounds, slowest = 0, 0.0
    async with AsyncExitStack() as stack:
        replicas = [await stack.enter_async_context(store.replica(pod)) for pod in pods]
        while time.monotonic() < ends:
            took = await asyncio.gather(*(_honest(replica) for replica in replicas))
            rounds, slowest = rounds + 1, max(slowest, *took)
            await asyncio.sleep(_ROUND_SECONDS)
    return f"{rounds} rounds of honest answers, slowest recall {slowest:.1f} s"


async def _honest(replica: httpx.AsyncClient) -> float:
    """Check every answer of a replica without a database; returns how long its recall took."""
    check((await replica.get("/healthz")).status_code == 200, "not alive without its database")
    check((await replica.get("/readyz")).status_code == 503, "ready without its database")
    scope = {"scope": {"level": "session", **attribution(_NOBODY, "outage")}}
    began = time.monotonic()
    recall = await replica.post("/v1/recall", json=scope | {"query": "What is there?"})
    took = time.monotonic() - began
    check(took < RECALL_SECONDS, f"a recall took {took:.1f} s")
    _check_answer(
        recall,
        {
            "long_term": {"facts": [], "block": ""},
            "medium_term": {"summary": ""},
            "short_term": {"window": []},
            "degraded": True,
        },
    )
    turns = {
        "attribution": attribution(_NOBODY, "outage"),
        "turns": [{"role": "user", "content": "This is not stored."}],
    }
    refused = {"accepted": False, "scheduled": False, "degraded": True}
    await _both_modes(replica, "/v1/write", turns, refused)
    await _both_modes(replica, "/v1/forget", scope, {"forgotten": False, "degraded": True})
    return took


async def _both_modes(
    replica: httpx.AsyncClient, path: str, body: dict[str, Any], soft: dict[str, Any]
) -> None:
    _check_answer(await replica.post(path, json=body | {"failure_mode": "soft"}), soft)
    strict = await replica.post(path, json=body | {"failure_mode": "strict"})
    check(strict.status_code == 503, f"a strict {path} answered {strict.status_code}")
    check(strict.headers.get("retry-after", "").isdigit(), f"{path}: 503 without Retry-After")


def _check_answer(answer: httpx.Response, expected: dict[str, Any]) -> None:
    path = answer.request.url.path
    check(answer.status_code == 200, f"{path} answered {answer.status_code} without a database")
    check(answer.json() == expected, f"{path} without a database: {answer.text[:200]}")


def _check_not_restarted(store: Store, before: dict[str, int]) -> None:
    after = store.restarts()
    check(after == before, f"replicas were restarted: {before} became {after}")


def _all_ready(store: Store, replicas: dict[str, int]) -> bool:
    return store.ready_replicas() == len(replicas)
