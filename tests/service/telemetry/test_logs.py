"""Logs: JSON, with fields, and without what an exception quotes."""

import contextvars
import json
import logging

import pytest
from opentelemetry import context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from kaos_memory.telemetry import logs, request_id

from .conftest import LogLines


def _connect(dsn: str) -> None:
    raise ValueError(dsn)


@pytest.mark.usefixtures("restored_logging")
def test_an_exception_is_its_type_and_its_place_and_nothing_that_it_says(
    capsys: pytest.CaptureFixture[str],
):
    logs.set_up()
    log = logging.getLogger("probe")
    try:
        try:
            _connect("postgresql://kaos:hunter2@db")
        except ValueError as error:
            raise RuntimeError("her secret is tea") from error
    except RuntimeError:
        log.exception("work_crashed", extra={"kind": "fold"})
    line = json.loads(capsys.readouterr().err)
    assert (line["message"], line["kind"], line["level"]) == ("work_crashed", "fold", "ERROR")
    assert "builtins.RuntimeError at test_an_exception" in line["exc_info"]
    assert "caused by builtins.ValueError at _connect" in line["exc_info"]
    assert "hunter2" not in str(line)
    assert "tea" not in str(line)


def test_a_line_has_the_ids_of_its_request_and_of_its_trace_where_there_are_any(
    log_lines: LogLines,
):
    log = logging.getLogger("probe")

    def in_a_request() -> None:
        request_id.begin("run-7")
        trace = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
        context.attach(TraceContextTextMapPropagator().extract(trace))
        log.info("inside")

    contextvars.Context().run(in_a_request)
    contextvars.Context().run(log.info, "outside")
    inside, outside = log_lines()
    assert inside["request_id"] == "run-7"
    assert inside["trace_id"] == "0af7651916cd43dd8448eb211c80319c"
    assert inside["span_id"] == "b7ad6b7169203331"
    assert outside.keys() == {"time", "level", "logger", "message"}
