"""The processes of a run besides the load: starting them, waiting for them, ending them."""

import http.client
import json
import secrets
import subprocess
import sys
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import httpx
import psutil

from bench.load import Address
from kaos_dev.service_process import free_port

_READY_SECONDS = 60.0
_STOP_SECONDS = 30.0
_POLL_SECONDS = 0.005


class Process(Protocol):
    """A service that can be started and stopped, again and again, on its port."""

    port: int
    log: Path

    @property
    def pid(self) -> int:
        """Its process id, while it runs."""
        ...

    def start(self, *, wait: bool = True) -> None:
        """Start it, and wait until it is ready if so asked."""
        ...

    def stop(self) -> int | None:
        """End it; returns its exit code."""
        ...


class PlainProcess:
    """A command that serves on a loopback port.

    Args:
        command: Its words.
        environment: All its variables; None for those of this process.
        log: Where its output goes.
        port: Where it listens; it is told by the command or the environment.
    """

    def __init__(
        self, command: Sequence[str], environment: Mapping[str, str] | None, log: Path, port: int
    ) -> None:
        self.port, self.log = port, log
        self._command, self._environment = command, environment
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """Its process id, while it runs."""
        assert self._process is not None
        return self._process.pid

    def start(self, *, wait: bool = True) -> None:
        """Start it, and wait until it is ready if so asked."""
        with self.log.open("ab") as output:
            self._process = subprocess.Popen(
                self._command, env=self._environment, stdout=output, stderr=subprocess.STDOUT
            )
        if wait:
            try:
                wait_until_ready(self)
            except BaseException:
                self.stop()
                raise

    def stop(self) -> int | None:
        """SIGTERM, and SIGKILL where that is not enough."""
        process, self._process = self._process, None
        return None if process is None else stop(process)


@dataclass(frozen=True)
class ModelEndpoint:
    """The one model server of the run."""

    url: str
    """With its `/v1`."""
    api_key: str

    @property
    def address(self) -> Address:
        """Where it listens."""
        parsed = httpx.URL(self.url)
        return Address(parsed.host, parsed.port or 80)


@contextmanager
def model_server(log: Path) -> Generator[ModelEndpoint]:
    """Our deterministic model server as a process of its own."""
    api_key = f"sk-{secrets.token_hex(16)}"
    command = [sys.executable, "-m", "kaos_dev.model_server", "--api-key", api_key]
    with (
        log.open("wb") as errors,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True) as process,
    ):
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            yield ModelEndpoint(json.loads(line)["url"], api_key)
        finally:
            stop(process)


def bare_service(dsn: str, log: Path) -> PlainProcess:
    """The floor: see `bench.bare`."""
    port = free_port()
    return PlainProcess([sys.executable, "-m", "bench.bare", dsn, str(port)], None, log, port)


def wait_until_ready(process: Process) -> None:
    """Wait until `/readyz` is answered with 200; looks every few milliseconds.

    Raises:
        RuntimeError: that did not happen in time; with the end of the log.
    """
    deadline = time.monotonic() + _READY_SECONDS
    started = psutil.Process(process.pid)
    while time.monotonic() < deadline and started.status() != psutil.STATUS_ZOMBIE:
        connection = http.client.HTTPConnection("127.0.0.1", process.port, timeout=5)
        with suppress(OSError, http.client.HTTPException):
            connection.request("GET", "/readyz")
            if connection.getresponse().status == 200:
                return
        connection.close()
        time.sleep(_POLL_SECONDS)
    end = process.log.read_text(errors="replace")[-2_000:]
    raise RuntimeError(f"nothing is ready on port {process.port}:\n{end}")


def stop(process: subprocess.Popen[bytes] | subprocess.Popen[str]) -> int:
    """SIGTERM, and SIGKILL where that is not enough; returns the exit code."""
    process.terminate()
    try:
        return process.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()


def command_line(arguments: Sequence[str], module: str = "bench") -> str:
    """The command that a reader repeats."""
    return " ".join(["python", "-m", module, *arguments])
