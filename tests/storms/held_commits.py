"""Transactions that wait before their commit, on both storages."""

import asyncio
import contextlib
from collections.abc import Callable, Generator
from contextvars import ContextVar
from sqlite3 import Connection
from typing import Any
from unittest.mock import patch

from kaos_dev.crash_points import stepping
from kaos_memory.storage.local.database import Database as LocalDatabase

from .scripted_model import Gate

held: ContextVar[Gate | None] = ContextVar("held", default=None)
"""Where the next write of this task waits, with all its rows written and its locks taken."""


@contextlib.contextmanager
def holding(commit_of_work: Callable[[], Gate | None]) -> Generator[None]:
    """Writes wait where `held` says; commits of background work where they are told."""

    async def reached(step: str) -> None:
        gate = held.get() if step == "write.before_commit" else None
        if step in {"fold.before_commit", "extract.before_commit"}:
            gate = commit_of_work()
        if gate is not None:
            await gate.wait()

    with stepping(reached), patch.object(LocalDatabase, "write", _waiting_locally):
        yield


_write_locally = LocalDatabase.write


async def _waiting_locally(database: LocalDatabase, change: Callable[[Connection], Any]) -> Any:
    """The same for the one thread that writes, which then waits as a whole."""
    gate, loop = held.get(), asyncio.get_running_loop()
    if gate is None:
        return await _write_locally(database, change)

    def changed(connection: Connection) -> Any:
        result = change(connection)
        asyncio.run_coroutine_threadsafe(gate.wait(), loop).result()
        return result

    return await _write_locally(database, changed)
