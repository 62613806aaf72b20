"""`python -m kaos_dev.crash_points`: the service, which SIGKILLs itself at a named step.

A crash from outside hits a line by luck; this one hits it for certain. The product has no hooks
for it: while `stepping`, the storage's own methods are wrapped. Steps follow each other as

- `<operation>.begun` (of background work `.loaded`, what the model is asked with, and
  `.answered`, what it said),
- `<operation>.before_commit`: all statements are done, and their transaction is open still,
- `<operation>.after_commit`: it is stored, and nobody has been told.
"""

import functools
import os
import signal
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from contextvars import ContextVar
from datetime import timedelta
from typing import Any
from unittest.mock import patch

from kaos_memory import assembly
from kaos_memory.api import serve
from kaos_memory.storage.postgres.database import Connection, Database
from kaos_memory.storage.postgres.storage import PostgresStorage
from kaos_memory.storage.protocol import Batch, Lease
from kaos_memory.work.workers import Workers

AT = "CRASH_AT"
"""Variable: the step to die at. Unset or empty: none."""
PASSAGE = "CRASH_PASSAGE"
"""Variable: at which passage of it, from 1 (the default) on."""
LEASE_SECONDS = "CRASH_LEASE_SECONDS"
"""Variable: after how long the work of a dead replica is taken over. Unset: as in the product."""
CRASHED = "crashed at "
"""Begins the line of the log that names the step."""

_OPERATIONS = {
    "append": ("write", "begun"),
    "claim": ("claim", "begun"),
    "commit_fold": ("fold", "answered"),
    "commit_extraction": ("extract", "answered"),
    "erase": ("erase", "begun"),
}
"""The storage's methods: what they do, and what their beginning is called."""

STEPS = (
    *(
        f"{operation}.{step}"
        for operation, first in _OPERATIONS.values()
        for step in (first, "before_commit", "after_commit")
    ),
    "fold.loaded",
    "extract.loaded",
)
"""All steps."""

Reached = Callable[[str], Awaitable[None]]

_operation: ContextVar[str | None] = ContextVar("operation", default=None)


@contextmanager
def stepping(reached: Reached) -> Generator[None]:
    """Have every PostgreSQL storage of this process tell each step as it is reached, and wait."""
    with ExitStack() as patches:
        for method, (operation, first) in _OPERATIONS.items():
            stepped = _stepped(getattr(PostgresStorage, method), operation, first, reached)
            patches.enter_context(patch.object(PostgresStorage, method, stepped))
        load = _telling_what_was_loaded(PostgresStorage.load, reached)
        patches.enter_context(patch.object(PostgresStorage, "load", load))
        transaction = _telling_of_commits(vars(Database)["_transaction"], reached)
        patches.enter_context(patch.object(Database, "_transaction", transaction))
        yield


def _stepped(
    really: Callable[..., Awaitable[Any]], operation: str, first: str, reached: Reached
) -> Callable[..., Awaitable[Any]]:
    @functools.wraps(really)
    async def stepped(*arguments: Any, **named: Any) -> Any:
        await reached(f"{operation}.{first}")
        token = _operation.set(operation)
        try:
            return await really(*arguments, **named)
        finally:
            _operation.reset(token)

    return stepped


def _telling_what_was_loaded(
    really: Callable[[PostgresStorage, Lease], Awaitable[Batch | None]], reached: Reached
) -> Callable[[PostgresStorage, Lease], Awaitable[Batch | None]]:
    async def load(storage: PostgresStorage, lease: Lease) -> Batch | None:
        batch = await really(storage, lease)
        if batch is not None:
            await reached(f"{lease.kind}.loaded")
        return batch

    return load


def _telling_of_commits(really: Callable[..., Any], reached: Reached) -> Callable[..., Any]:
    @asynccontextmanager
    async def transaction(*arguments: Any, **named: Any) -> AsyncGenerator[Connection]:
        operation = _operation.get()
        async with really(*arguments, **named) as connection:
            yield connection
            if operation is not None:
                await reached(f"{operation}.before_commit")
        if operation is not None:
            await reached(f"{operation}.after_commit")

    return transaction


class CrashPoint:
    """Ends this process at one passage of one step, as a crash would."""

    def __init__(self, step: str, passage: int) -> None:
        if step not in STEPS:
            raise SystemExit(f"{AT} names no step: {step!r}; there are {', '.join(STEPS)}")
        self._step = step
        self._left = passage

    async def reached(self, step: str) -> None:
        """Die here, or go on."""
        if step != self._step:
            return
        self._left -= 1
        if self._left == 0:
            os.write(2, f"{CRASHED}{step}\n".encode())
            os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    """Serve, until the step that the environment names."""
    with ExitStack() as changes:
        if lease := os.environ.get(LEASE_SECONDS):
            workers = functools.partial(Workers, lease_for=timedelta(seconds=int(lease)))
            changes.enter_context(patch.object(assembly, "Workers", workers))
        if step := os.environ.get(AT):
            crash = CrashPoint(step, int(os.environ.get(PASSAGE, "1")))
            changes.enter_context(stepping(crash.reached))
        serve.main()


if __name__ == "__main__":
    main()
