"""What bodies and connections may take, whoever sends them."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

from kaos_dev.service_process import ServiceProcess
from kaos_memory.api import limits
from kaos_memory.api.limits import BodyLimit
from kaos_memory.api.serve import MAX_CONNECTIONS


class Echo:
    """Answers with the number of bytes, once it may."""

    def __init__(self) -> None:
        self.may_answer = asyncio.Event()
        self.read = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = await Request(scope, receive).body()
        self.read.set()
        await self.may_answer.wait()
        await PlainTextResponse(str(len(body)))(scope, receive, send)


def client_of(app: BodyLimit) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://service")


async def _never_ends() -> AsyncIterator[bytes]:
    yield b"begun"
    await asyncio.Event().wait()


async def test_a_body_that_does_not_end_is_refused_in_time(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(limits, "BODY_SECONDS", 0.1)
    reasons: list[str] = []
    async with client_of(BodyLimit(Echo(), reasons.append)) as client:
        refused = await client.post("/", content=_never_ends())
    assert (refused.status_code, reasons) == (408, ["late"])
    assert refused.headers["connection"] == "close"
    assert refused.headers["content-type"] == "application/problem+json"
    assert "within 0.1 seconds" in refused.json()["detail"]


async def test_the_time_of_a_body_is_not_that_of_its_answer(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(limits, "BODY_SECONDS", 0.1)
    echo = Echo()
    async with client_of(BodyLimit(echo)) as client:
        asking = asyncio.create_task(client.post("/", content=b"abc"))
        await asyncio.sleep(0.2)
        echo.may_answer.set()
        assert (await asking).text == "3"


async def test_all_bodies_together_are_bounded_until_they_are_answered(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(limits, "MAX_HELD_BYTES", 150)
    echo, reasons = Echo(), list[str]()
    async with client_of(BodyLimit(echo, reasons.append)) as client:
        first = asyncio.create_task(client.post("/", content=b"x" * 100))
        await echo.read.wait()
        refused = await client.post("/", content=b"x" * 51)
        assert (refused.status_code, reasons) == (503, ["too_many"])
        assert int(refused.headers["retry-after"]) > 0
        echo.may_answer.set()
        assert (await first).text == "100"
        assert (await client.post("/", content=b"x" * 150)).text == "150"


def test_connections_are_bounded_and_free_again_when_they_close(directory: Path, tmp_path: Path):
    model = {"BASE_URL": "http://127.0.0.1:1/v1", "MODEL": "none", "API_KEY": "none"}
    settings = {"KAOS_MEMORY_LOCAL_PATH": str(directory)} | {
        f"KAOS_MEMORY_MODELS_{role}_{name}": value
        for role in ("SUMMARIZATION", "EMBEDDING")
        for name, value in model.items()
    }
    with ServiceProcess(settings, tmp_path / "log") as service:
        with contextlib.ExitStack() as opened:
            for _ in range(MAX_CONNECTIONS):
                opened.enter_context(socket.create_connection(("127.0.0.1", service.port)))
            assert httpx.get(f"{service.url}/healthz").status_code == 503
        assert httpx.get(f"{service.url}/healthz").status_code == 200
