"""The id by which a request is found in logs, spans and the caller's own records."""

import re
from contextvars import ContextVar
from random import getrandbits

MAX_CHARS = 128
_ACCEPTED = re.compile(rf"[!-~]{{1,{MAX_CHARS}}}")
"""Printable ASCII without spaces."""

_current: ContextVar[str | None] = ContextVar("request_id", default=None)


def current() -> str | None:
    """The id of the request that this task works for."""
    return _current.get()


def begin(given: str | None) -> str:
    """Take the caller's id where it is a short printable one, else make one; it is now current.

    It stays so until the task ends, so that what the server logs of a crash has it as well.
    """
    if given is not None and _ACCEPTED.fullmatch(given):
        taken = given
    else:
        taken = f"{getrandbits(128):032x}"  # it names, and guards nothing
    _current.set(taken)
    return taken
