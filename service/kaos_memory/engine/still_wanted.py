"""Whether a model may be asked now: what it would read may have been erased since it was loaded.

Background work asks models several times, and an erasure may be answered between two requests.
So each request of an endpoint first awaits the check of whoever started the work.
"""

from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar

Check = Callable[[], Awaitable[None]]
"""Raises where nothing more may be asked."""

_check: ContextVar[Check | None] = ContextVar("still_wanted", default=None)


@contextmanager
def asking_only_while(check: Check) -> Generator[None]:
    """All requests that are made inside await this check first."""
    token = _check.set(check)
    try:
        yield
    finally:
        _check.reset(token)


async def still_wanted() -> None:
    """Raise what the check raises; without one, go on."""
    check = _check.get()
    if check is not None:
        await check()
