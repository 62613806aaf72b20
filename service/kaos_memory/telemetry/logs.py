"""Logs: a JSON object for each event, and exceptions without their messages.

An exception's message may quote what was being stored, or a DSN; its type and where it was raised
are what an operator needs.
"""

import logging
import traceback
from types import TracebackType
from typing import TypeAlias

from pythonjsonlogger.json import JsonFormatter

_ExceptionInfo: TypeAlias = (
    tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]
)


class _Formatter(JsonFormatter):
    def formatException(self, ei: _ExceptionInfo) -> str:  # noqa: N802 - the base class's name
        return "; caused by ".join(_without_messages(ei[1]))


def set_up() -> None:
    """Send all logs to standard error."""
    handler = logging.StreamHandler()
    handler.setFormatter(
        _Formatter(
            "%(asctime)s %(levelname)s %(name)s %(message)s",
            rename_fields={"asctime": "time", "levelname": "level", "name": "logger"},
        )
    )
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    logging.getLogger("httpx").setLevel(logging.WARNING)  # it logs each call of a model


def _without_messages(error: BaseException | None) -> list[str]:
    """An exception and its causes, each as its type and the frames that it went through."""
    told: list[str] = []
    while error is not None and len(told) < 5:
        frames = traceback.extract_tb(error.__traceback__)[-12:]
        where = " < ".join(f"{frame.name}:{frame.lineno}" for frame in reversed(frames))
        told.append(f"{type(error).__module__}.{type(error).__qualname__} at {where}")
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return told
