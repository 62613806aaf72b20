"""The service on local storage, which is what it runs on where nothing is configured."""

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest

from kaos_dev.model_server import ModelServer
from kaos_dev.service_process import ServiceProcess

from .conftest import store_environment, until

WHO = {"principal": "alice", "agent_client_id": "kaos://agent/support/helper", "session_id": "s-1"}
SESSION = {"level": "session", **WHO}


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The directory is named relative to where the service was started."""
    monkeypatch.chdir(tmp_path)


async def post(service: ServiceProcess, path: str, body: dict[str, Any]) -> dict[str, Any]:
    async with httpx.AsyncClient(base_url=service.url, timeout=30) as client:
        answer = await client.post(f"/v1/{path}", json=body)
    assert answer.status_code in (200, 202), answer.text
    return answer.json()


async def write(service: ServiceProcess, *contents: str) -> None:
    turns = [{"role": "user", "content": content} for content in contents]
    answer = await post(service, "write", {"attribution": WHO, "turns": turns})
    assert answer["accepted"] is True


async def window(service: ServiceProcess) -> list[str]:
    answer = await post(service, "recall", {"scope": SESSION, "query": ""})
    return [content for _, content in answer["short_term"]["window"]]


async def facts(service: ServiceProcess) -> list[str]:
    answer = await post(service, "list", {"scope": SESSION, "include": ["long_term"]})
    return [fact["memory"] for fact in answer["long_term"]["facts"]]


def traces(directory: Path, text: str) -> list[str]:
    files = (path for path in directory.rglob("*") if path.is_file())
    return [path.name for path in files if text.encode() in path.read_bytes()]


async def test_without_any_configuration_it_is_ready_and_keeps_what_is_written(tmp_path: Path):
    service = ServiceProcess({}, tmp_path / "log")
    await asyncio.to_thread(service.start)
    await write(service, "one", "two")
    assert await window(service) == ["one", "two"]
    await asyncio.to_thread(service.kill)
    await asyncio.to_thread(service.start)
    assert await window(service) == ["one", "two"]
    await asyncio.to_thread(service.stop)
    assert {path.name for path in (tmp_path / "kaos-memory").iterdir()} == {
        "lock", "kaos_memory.sqlite3"
    }  # fmt: skip


async def test_a_second_service_on_the_same_directory_waits_until_the_first_ends(tmp_path: Path):
    first, second = (ServiceProcess({}, tmp_path / name) for name in ("first", "second"))
    await asyncio.to_thread(first.start)
    await write(first, "one")
    await asyncio.to_thread(second.start, wait=False)

    async def refused() -> bool:
        return "is in use by another process" in (tmp_path / "second").read_text()

    await until(refused)
    async with httpx.AsyncClient(base_url=second.url) as client:
        assert (await client.get("/readyz")).status_code == 503
    await asyncio.to_thread(first.stop)
    await asyncio.to_thread(second.wait_until_ready)
    assert await window(second) == ["one"]
    await asyncio.to_thread(second.stop)


async def test_memory_in_all_tiers_is_kept_and_forgotten_without_a_trace(
    models: ModelServer, tmp_path: Path
):
    models.reset()
    everything = store_environment("", models).items()
    chosen = {name: value for name, value in everything if "EXTERNAL" not in value + name}
    del chosen["KAOS_MEMORY_STORAGE_TYPE"]
    service = ServiceProcess(chosen, tmp_path / "log")
    await asyncio.to_thread(service.start)
    for number in range(40):
        await write(service, f"Sentence number {number} is about the quokka.")

    async def known() -> bool:
        return bool(await facts(service))

    await until(known)
    answer = await post(service, "recall", {"scope": SESSION, "query": "quokka"})
    assert answer["degraded"] is False
    assert answer["long_term"]["facts"]
    assert traces(tmp_path / "kaos-memory", "quokka")
    forgotten = await post(service, "forget", {"scope": SESSION})
    assert forgotten["forgotten"] is True
    assert not traces(tmp_path / "kaos-memory", "quokka")
    assert await window(service) == []
    await asyncio.to_thread(service.stop)
    assert not traces(tmp_path / "kaos-memory", "quokka")
