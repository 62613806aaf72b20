"""Local storage that fails: nothing is called stored that is not, and it recovers by itself."""

import os
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kaos_memory.storage.local import database

from .conftest import Service, ServiceFactory
from .test_memory import ALICE, scope
from .test_outages import ready


@pytest.fixture
def backend() -> str:
    return "local"


@pytest.fixture
async def service(start: ServiceFactory, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Service]:
    """A service that does not wait long for locks."""
    monkeypatch.setattr(database, "_BUSY_SECONDS", 0.05)
    async with start() as started:
        await started.until(lambda: ready(started))
        yield started


async def test_while_the_file_is_locked_nothing_is_accepted_and_memory_is_read(
    service: Service, directory: Path
):
    assert (await service.write(ALICE, "before")).json()["accepted"] is True
    other = sqlite3.connect(directory / "kaos_memory.sqlite3", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    soft = await service.write(ALICE, "soft")
    assert soft.status_code == 200
    assert (soft.json()["accepted"], soft.json()["degraded"]) == (False, True)
    strict = await service.write(ALICE, "strict", failure_mode="strict")
    assert strict.status_code == 503
    assert "SQLITE" not in strict.text
    forgotten = await service.post("forget", {"scope": scope("session", **ALICE)})
    assert (forgotten.json()["forgotten"], forgotten.json()["degraded"]) == (False, True)
    recalled = await service.recall(scope("session", **ALICE))
    assert recalled["short_term"]["window"] == [["user", "before"]]
    assert recalled["degraded"] is False
    other.execute("ROLLBACK")
    other.close()
    assert (await service.write(ALICE, "after")).json()["accepted"] is True
    recalled = await service.recall(scope("session", **ALICE))
    assert recalled["short_term"]["window"] == [["user", "before"], ["user", "after"]]


async def test_a_directory_that_is_taken_away_is_noticed_and_made_anew(
    service: Service, directory: Path, tmp_path: Path
):
    assert (await service.write(ALICE, "before")).json()["accepted"] is True
    os.rename(directory, tmp_path / "elsewhere")  # noqa: PTH104
    assert (await service.write(ALICE, "lost")).json()["accepted"] is False
    await service.until(lambda: ready(service))
    assert (await service.write(ALICE, "after")).json()["accepted"] is True
    recalled = await service.recall(scope("session", **ALICE))
    assert recalled["short_term"]["window"] == [["user", "after"]]
