"""Status codes and JSON on the wire, exactly as the seeds show them; no client in between."""

from typing import Any
from uuid import UUID

import httpx
import pytest

AGENT = "kaos://agent/support/helper"


async def post(
    http: httpx.AsyncClient, path: str, body: dict[str, Any], actor: str | None = None
) -> tuple[int, Any]:
    headers = {"X-Actor": actor} if actor else {}
    answer = await http.post(f"/v1/{path}", json=body, headers=headers)
    assert answer.headers["content-type"] == "application/json"
    return answer.status_code, answer.json()


def attributed(session: str) -> dict[str, str]:
    return {"principal": "wire-user", "agent_client_id": AGENT, "session_id": session}


async def test_probes(http: httpx.AsyncClient):
    alive, ready = await http.get("/healthz"), await http.get("/readyz")

    assert (alive.status_code, alive.json()) == (200, {"status": "ok"})
    stores = {"short_term": True, "longterm": True}
    assert (ready.status_code, ready.json()) == (200, {"ready": True, "stores": stores})


@pytest.mark.parametrize("path", ["recall", "list"])
async def test_an_agent_may_not_read_the_store(http: httpx.AsyncClient, path: str):
    query = {"query": "everything"} if path == "recall" else {}

    status, body = await post(http, path, {"scope": {"level": "store"}, **query}, actor=AGENT)

    assert status == 403
    assert body == {"error": "store scope is admin-only"}


async def test_an_agent_may_not_erase_the_store(http: httpx.AsyncClient):
    status, body = await post(http, "forget", {"scope": {"level": "store"}}, actor=AGENT)

    assert status == 403
    assert body == {"forgotten": False, "error": "store scope is admin-only"}


@pytest.mark.parametrize("level", ["session", "agent", "user"])
async def test_an_incomplete_scope_is_refused(http: httpx.AsyncClient, level: str):
    status, body = await post(http, "recall", {"scope": {"level": level}, "query": "?"})

    assert status == 400
    assert body == {"error": f"incomplete {level} scope"}


async def test_a_write_without_an_agent_is_refused(http: httpx.AsyncClient):
    turn = {"role": "user", "content": "Nobody listens."}
    attribution = {"principal": "wire-user", "session_id": "wire-alone"}

    status, body = await post(http, "write", {"attribution": attribution, "turns": [turn]})

    assert status == 403
    assert body == {"accepted": False, "error": "missing required agent identity"}


@pytest.mark.parametrize(
    "turns",
    [
        {"turns": [{"role": "user", "content": "I moved to Bergen."}]},
        {"role": "user", "content": "I moved to Bergen."},
    ],
)
async def test_a_buffered_write_is_200_and_a_read_back_is_its_turn(
    http: httpx.AsyncClient, turns: dict[str, Any]
):
    who = attributed(f"wire-short-{len(turns)}")

    written = await post(http, "write", {"attribution": who, **turns})
    recalled = await post(
        http,
        "recall",
        {"scope": {"level": "session", **who}, "query": "", "include": ["short_term"]},
    )

    assert written == (200, {"accepted": True, "scheduled": False, "degraded": False})
    window = [["user", "I moved to Bergen."]]
    assert recalled == (200, {"short_term": {"window": window}, "degraded": False})


async def test_a_write_that_overflows_the_window_is_202(http: httpx.AsyncClient):
    turns = [{"role": "user", "content": f"The {n}th item is a long one. " * 8} for n in range(3)]

    written = await post(http, "write", {"attribution": attributed("wire-long"), "turns": turns})

    assert written == (202, {"accepted": True, "scheduled": True, "degraded": False})


@pytest.mark.parametrize("path", ["recall", "list"])
async def test_an_empty_scope_answers_with_every_tier_empty(http: httpx.AsyncClient, path: str):
    scope = {"level": "session", **attributed("wire-nothing")}
    query = {"query": "Anything?"} if path == "recall" else {}

    answer = await post(http, path, {"scope": scope, **query})

    empty = {
        "long_term": {"facts": [], "block": ""},
        "medium_term": {"summary": ""},
        "short_term": {"window": []},
        "degraded": False,
    }
    assert answer == (200, empty)


async def test_forget_answers_with_a_receipt_of_counts(http: httpx.AsyncClient):
    who = attributed("wire-forget")
    turn = {"role": "user", "content": "Forget this."}
    await post(http, "write", {"attribution": who, "turns": [turn]})

    status, body = await post(http, "forget", {"scope": {"level": "session", **who}})

    receipt = body.pop("receipt")
    assert (status, body) == (200, {"forgotten": True, "degraded": False})
    assert UUID(receipt.pop("id"))
    assert receipt.pop("erased_at")
    hashes = {name: receipt.pop(f"{name}_hash") for name in ("principal", "agent", "session")}
    assert all(len(bytes.fromhex(digest)) == 32 for digest in hashes.values())
    assert receipt.pop("key_id")
    assert receipt == {
        "level": "session",
        "turns": 1,
        "digests": 0,
        "facts": 0,
        "sessions": 1,
        "residue": 0,
    }
