"""The demo as the user runs it: with other ports and endpoints, and ended from outside."""

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import psutil
import pytest

from kaos_dev.model_server import Behaviour, ModelServer
from kaos_dev.service_process import free_port


@pytest.fixture
def folder() -> Iterator[Path]:
    """A TMPDIR that PostgreSQL's user can enter, to see what is left in it."""
    with tempfile.TemporaryDirectory() as made:
        Path(made).chmod(0o711)
        yield Path(made)


def start(*arguments: str, environment: Mapping[str, str], folder: Path) -> subprocess.Popen[str]:
    inherited = {name: text for name, text in os.environ.items() if not name.startswith("OPENAI_")}
    return subprocess.Popen(
        [sys.executable, "-m", "kaos_dev.demo", *arguments],
        env={**inherited, "TMPDIR": str(folder), **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def endpoint(models: ModelServer, **others: str) -> dict[str, str]:
    return {"OPENAI_BASE_URL": models.url, "OPENAI_API_KEY": models.api_key, **others}


def played(environment: Mapping[str, str], folder: Path) -> tuple[int, dict[str, object]]:
    process = start("demo", "--json", environment=environment, folder=folder)
    output, errors = process.communicate(timeout=60)
    assert "Traceback" not in errors, errors
    return process.returncode, json.loads(output)


def test_a_users_endpoint_with_other_dimensions_fills_all_tiers(models: ModelServer, folder: Path):
    """Its own models by default: text-embedding-3-small has 1536 dimensions, the stack 384."""
    code, result = played(endpoint(models), folder)
    assert (code, result["passed"]) == (0, True), result
    bodies = [request.body for request in models.requests.all("embeddings")]
    assert {body["model"] for body in bodies} == {"text-embedding-3-small"}
    assert not any("dimensions" in body for body in bodies)
    assert not list(folder.glob("kaos-demo-*"))


def test_an_endpoint_without_a_key_is_asked_with_a_stand_in(models: ModelServer, folder: Path):
    code, result = played(endpoint(models, OPENAI_API_KEY=""), folder)
    assert code == 1
    assert "the embedding endpoint answered 401 (invalid_api_key)" in str(result["error"])
    assert "check OPENAI_BASE_URL, OPENAI_API_KEY" in str(result["error"])


def test_an_unknown_chat_model_ends_the_demo_with_the_reason(models: ModelServer, folder: Path):
    code, result = played(endpoint(models, OPENAI_CHAT_MODEL="no-such-model"), folder)
    assert code == 1
    assert result["passed"] is False
    assert "the summarization endpoint answered 404 (model_not_found)" in str(result["error"])
    assert "OPENAI_CHAT_MODEL" in str(result["error"])


@pytest.mark.slow
def test_answers_without_facts_are_told(models: ModelServer, folder: Path):
    """Every tier is shown, or the demo says which is not."""
    models.script(Behaviour(endpoint="chat", times=None, content='{"memory": []}'))
    code, result = played(endpoint(models), folder)
    assert (code, result) == (1, {"passed": False, "error": "the demo did not show facts"})


def test_the_help_names_the_variables_of_the_models(folder: Path):
    shown, _ = start("demo", "--help", environment={}, folder=folder).communicate(timeout=30)
    for name in ("BASE_URL", "API_KEY", "CHAT_MODEL", "EMBEDDING_MODEL"):
        assert f"OPENAI_{name}" in shown


def test_a_port_in_use_is_one_line_with_the_way_out(folder: Path):
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        process = start("dev", "--port", str(port), environment={}, folder=folder)
        _, errors = process.communicate(timeout=30)
    assert process.returncode == 1
    assert errors == (
        f"error: cannot listen on 127.0.0.1:{port}: address already in use; "
        "choose another: make dev PORT=...\n"
    )


@pytest.mark.parametrize(
    "sent", [signal.SIGTERM, pytest.param(signal.SIGHUP, marks=pytest.mark.slow)]
)
def test_a_signal_ends_all_that_was_started(
    sent: signal.Signals, models: ModelServer, folder: Path
):
    port = free_port()
    process = start("dev", "--port", str(port), environment=endpoint(models), folder=folder)
    assert process.stdout is not None
    while "curl" not in process.stdout.readline():
        assert process.poll() is None
    started = psutil.Process(process.pid).children(recursive=True)
    names = {child.name() for child in started}
    assert "postgres" in names
    assert len(names) > 1
    process.send_signal(sent)
    process.communicate(timeout=30)
    assert process.returncode == 128 + sent
    assert not any(child.is_running() for child in started)
    assert not list(folder.glob("kaos-demo-*"))
    assert not list(folder.glob("kaos-postgres-*/*"))
