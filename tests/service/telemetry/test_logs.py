"""Logs: JSON, with fields, and without what an exception quotes."""

import json
import logging
from collections.abc import Iterator

import pytest

from kaos_memory.telemetry import logs


@pytest.fixture
def _restored() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


def _connect(dsn: str) -> None:
    raise ValueError(dsn)


@pytest.mark.usefixtures("_restored")
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
