"""The command line as a process: exit codes, what goes where, and what must never be told."""

import os
import pty
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import httpx
import pytest

from kaos_dev.service_process import free_port
from kaos_memory.commands.outcome import ExitCode
from kaos_memory.storage.protocol import Storage, WorkState

from ..conftest import PASSWORD
from .conftest import Ended, Run
from .test_work import dead, states

SCRIPT = Path(sys.executable).with_name("kaos-memory")


def run_process(
    environment: Mapping[str, str],
    *arguments: str,
    program: Sequence[str | Path] = (SCRIPT,),
    stdin: int = subprocess.DEVNULL,
    stdout: int = subprocess.PIPE,
) -> Ended:
    ended = subprocess.run(
        [*program, *arguments],
        env=environment,
        stdin=stdin,
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    return Ended(ended.returncode, ended.stdout, ended.stderr)


def test_the_program_prints_json_alone(environment: Mapping[str, str]):
    ended = run_process(environment, "work", "list", "--json")
    assert (ended.code, ended.err) == (ExitCode.DONE, "")
    assert ended.json == {"items": [], "summary": []}


async def test_without_a_command_it_helps(run: Run):
    ended = await run()
    assert ended.code == ExitCode.REFUSED
    for command in ("serve", "work", "erasures"):
        assert f"\n  {command} " in ended.out + ended.err


def test_it_tells_its_version():
    assert run_process({}, "--version").out == "0.1.0\n"


async def test_every_broken_setting_is_named(run: Run):
    wrong = {
        "KAOS_MEMORY_STORE_NAMES": "x",
        "KAOS_MEMORY_EXTERNAL_DSN": f"mysql://kaos:{PASSWORD}@db/kaos",
    }
    ended = await run("work", "list", **wrong)
    assert (ended.code, ended.out) == (ExitCode.REFUSED, "")
    first, second = ended.err.splitlines()
    assert first.startswith("error: KAOS_MEMORY_STORE_NAMES is not a setting")
    assert second.startswith("error: storage.external.dsn is a secret")
    assert PASSWORD not in ended.err


async def test_a_storage_that_is_away_is_said_without_its_dsn(run: Run):
    away = f"postgresql://kaos:{PASSWORD}@127.0.0.1:{free_port()}/somewhere"
    ended = await run("work", "list", "--json", KAOS_MEMORY_EXTERNAL_DSN=away)
    assert (ended.code, ended.out) == (ExitCode.NO_STORAGE, "")
    assert ended.err.startswith("error: the storage is unavailable (ConnectionRefusedError); check")
    assert PASSWORD not in ended.err
    assert "somewhere" not in ended.err


async def test_the_store_of_somebody_else_is_left_alone(run: Run, dsn: str):
    ended = await run("work", "list", KAOS_MEMORY_STORE_NAME="tests/other")
    assert (ended.code, ended.out) == (ExitCode.NO_STORAGE, "")
    assert "tests/store" in ended.err
    assert dsn not in ended.err


def test_an_error_that_nobody_foresaw_is_logged_without_its_text():
    broken = (
        "from kaos_memory.commands import app, work\n"
        "def burst(_): raise RuntimeError('a secret')\n"
        "work.on_storage = burst\n"
        "app.main()"
    )
    ended = run_process({}, "work", "list", program=(sys.executable, "-c", broken))
    assert (ended.code, ended.out) == (ExitCode.FAILED, "")
    assert "builtins.RuntimeError at burst" in ended.err
    assert "a secret" not in ended.err


@pytest.mark.parametrize(
    ("answer", "code", "state"),
    [("n", ExitCode.FAILED, WorkState.DEAD), ("y", ExitCode.DONE, WorkState.WAITING)],
)
async def test_on_a_terminal_it_asks_before_it_drops(
    storage: Storage,
    environment: Mapping[str, str],
    answer: str,
    code: ExitCode,
    state: WorkState,
):
    ref = await dead(storage)
    ours, theirs = pty.openpty()
    os.write(ours, f"{answer}\n".encode())
    ended = run_process(environment, "work", "drop", ref, "--json", stdin=theirs)
    os.close(ours)
    os.close(theirs)
    assert ended.code == code
    assert "Give up 1 piece of dead work (1 extract) for good?" in ended.err
    assert "Give up" not in ended.out
    assert (await states(storage))[ref] is state


async def test_on_a_terminal_tables_are_drawn(storage: Storage, environment: Mapping[str, str]):
    ref = await dead(storage)
    ours, theirs = pty.openpty()
    terminal = {"TERM": "xterm-256color", "COLUMNS": "160", "NO_COLOR": "1"}
    run_process({**environment, **terminal}, "work", "list", stdout=theirs)
    os.close(theirs)
    drawn = os.read(ours, 65_536).decode()
    os.close(ours)
    assert ref in drawn
    assert "\N{BOX DRAWINGS LIGHT HORIZONTAL}" in drawn
    assert not re.search(r"\x1b\[[\d;]*[34]\d", drawn)  # a colour


def test_serving_is_the_process_that_the_image_starts(environment: Mapping[str, str]):
    port = free_port()
    serving = {
        **environment,
        "KAOS_MEMORY_SERVER_PORT": str(port),
        "KAOS_MEMORY_TELEMETRY_METRICS_PORT": str(free_port()),
    }
    process = subprocess.Popen([SCRIPT, "serve"], env=serving, stderr=subprocess.DEVNULL)
    try:
        until_alive(f"http://127.0.0.1:{port}/healthz")
        command = Path(f"/proc/{process.pid}/cmdline").read_bytes().split(b"\0")
    finally:
        process.send_signal(signal.SIGTERM)
        code = process.wait(30)
    assert command[1:3] == [b"-m", b"kaos_memory.api.serve"]
    assert code == -signal.SIGTERM  # it drained, and ends as it was told to


def until_alive(url: str) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            httpx.get(url).raise_for_status()
        except httpx.TransportError:
            time.sleep(0.05)
        else:
            return
    raise AssertionError("the service did not answer")


def test_the_service_carries_nothing_of_the_command_line():
    loaded = "import sys, kaos_memory.api.serve; print('typer' in sys.modules)"
    assert run_process({}, program=(sys.executable, "-c", loaded)).out == "False\n"
