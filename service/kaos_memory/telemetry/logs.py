"""Logs: a JSON object for each event with the ids of its request and trace, if it has any.

Exceptions come without their messages: those may quote what was being stored, or a DSN. Their
types and where they were raised are what an operator needs.
"""

import logging
import traceback
from types import TracebackType
from typing import Any, TypeAlias

from opentelemetry.trace import format_span_id, format_trace_id, get_current_span
from pythonjsonlogger.json import JsonFormatter

from kaos_memory.telemetry import request_id

_ExceptionInfo: TypeAlias = (
    tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]
)


class _Formatter(JsonFormatter):
    def add_fields(
        self,
        log_data: dict[str, Any],
        record: logging.LogRecord,
        message_dict: dict[str, Any],
    ) -> None:
        super().add_fields(log_data, record, message_dict)
        current = request_id.current()
        if current is not None:
            log_data["request_id"] = current
        span = get_current_span().get_span_context()
        if span.is_valid:
            log_data["trace_id"] = format_trace_id(span.trace_id)
            log_data["span_id"] = format_span_id(span.span_id)

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
