"""A store in a directory: for one process at a time, so commands wait until nobody serves it."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from kaos_memory.commands.outcome import ExitCode
from kaos_memory.storage.protocol import Storage

from .conftest import Run
from .test_work import dead


@pytest.fixture
def backend() -> str:
    return "local"


@pytest.fixture
def environment(environment: Mapping[str, str], directory: Path) -> dict[str, str]:
    kept = {name: value for name, value in environment.items() if "EXTERNAL" not in name}
    local = {"KAOS_MEMORY_STORAGE_TYPE": "local", "KAOS_MEMORY_LOCAL_PATH": str(directory)}
    return kept | local


async def test_looking_for_a_store_does_not_make_one(run: Run, directory: Path):
    ended = await run("work", "list")
    assert (ended.code, ended.out) == (ExitCode.NO_STORAGE, "")
    assert ended.err == (
        f"error: there is no store in {directory}; correct storage.local.path "
        "(KAOS_MEMORY_LOCAL_PATH)\n"
    )
    assert (await run("work", "list")).code == ExitCode.NO_STORAGE  # there is still none


async def test_a_store_is_looked_after_while_nobody_serves_it(storage: Storage, run: Run):
    ref = await dead(storage)
    ended = await run("work", "retry", ref)
    assert (ended.code, ended.out) == (ExitCode.NO_STORAGE, "")
    assert "is in use by another process" in ended.err
    await storage.close()
    ended = await run("work", "retry", ref, "--json")
    assert (ended.code, ended.json) == (ExitCode.DONE, {"retried": [ref], "not_dead": []})
