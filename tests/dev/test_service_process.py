"""The service's process: whose port it is, and how it ends."""

import http.server
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from kaos_dev import tethered
from kaos_dev.service_process import (
    PortInUseError,
    ServiceFailedError,
    ServiceProcess,
    free_port,
    require_free_port,
)


class AlwaysReady(http.server.BaseHTTPRequestHandler):
    """Somebody else's server, which answers 200 to anything."""

    def do_GET(self):
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object):  # pyright: ignore[reportIncompatibleMethodOverride]
        pass


@pytest.fixture
def stranger() -> Iterator[int]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), AlwaysReady) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


def test_a_port_in_use_is_refused_before_anything_starts(stranger: int, tmp_path: Path):
    process = ServiceProcess({}, tmp_path / "log", stranger)
    with pytest.raises(PortInUseError, match=f"127.0.0.1:{stranger}: address already in use"):
        process.start()
    assert not (tmp_path / "log").exists()


def test_a_free_port_is_free():
    require_free_port(free_port())


def test_anothers_readiness_is_not_the_services(
    stranger: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """As when somebody takes the port between the look and the service's start."""

    def look_too_early(_port: int) -> None: ...

    monkeypatch.setattr("kaos_dev.service_process.require_free_port", look_too_early)
    environment = {"KAOS_MEMORY_STORAGE_TYPE": "external"}
    process = ServiceProcess(environment, tmp_path / "log", stranger)
    with pytest.raises(
        ServiceFailedError, match=r"the service ended:\nerror: .* needs the external block"
    ):
        process.start()


def test_the_command_dies_with_its_parent_even_by_sigkill():
    script = (
        "import os, subprocess, sys, time\n"
        f"command = [sys.executable, {tethered.__file__!r}, str(os.getpid()), '/bin/sleep', '60']\n"
        "child = subprocess.Popen(command)\n"
        "while open(f'/proc/{child.pid}/comm').read().strip() != 'sleep': time.sleep(0.01)\n"
        "print(child.pid, flush=True)\n"
        "time.sleep(60)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    child = psutil.Process(int(parent.stdout.readline()))
    parent.kill()
    parent.communicate()
    _ended(child)


def test_the_command_does_not_start_once_its_parent_is_gone(tmp_path: Path):
    stranger = os.getppid()
    command = [sys.executable, tethered.__file__, str(stranger), "/usr/bin/touch", "started"]
    assert subprocess.run(command, check=False, cwd=tmp_path).returncode == 0
    assert not (tmp_path / "started").exists()


def test_signals_reach_the_command_itself():
    command = [sys.executable, tethered.__file__, str(os.getpid()), "/bin/sleep", "60"]
    with subprocess.Popen(command) as child:
        child.send_signal(signal.SIGTERM)
        assert child.wait(10) == -signal.SIGTERM


def _ended(process: psutil.Process) -> None:
    """An orphan may stay a zombie where nothing reaps."""
    try:
        while process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
            time.sleep(0.01)
    except psutil.NoSuchProcess:
        pass
