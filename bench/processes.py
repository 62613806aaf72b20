"""The other processes of a run: the model server, and a service that does nothing."""

import json
import secrets
import subprocess
import sys
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import httpx

from bench.load import Address
from kaos_dev.service_process import free_port

_READY_SECONDS = 60.0
_STOP_SECONDS = 30.0


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


@contextmanager
def nothing(log: Path) -> Generator[Address]:
    """A FastAPI application on uvicorn that reads a body and does nothing."""
    port = free_port()
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "bench.nothing", str(port)],
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        try:
            wait_until_answered(f"http://127.0.0.1:{port}/", process, log)
            yield Address("127.0.0.1", port)
        finally:
            stop(process)


def wait_until_answered(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    """Wait until a GET is answered with 200.

    Raises:
        RuntimeError: the process ended, or did not answer in time; with the end of its log.
    """
    deadline = time.monotonic() + _READY_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        with suppress(httpx.TransportError):
            if httpx.get(url, timeout=5).status_code == 200:
                return
        time.sleep(0.05)
    raise RuntimeError(f"{url} does not answer:\n{log.read_text(errors='replace')[-2_000:]}")


def stop(process: subprocess.Popen[bytes] | subprocess.Popen[str]) -> None:
    """SIGTERM, and SIGKILL where that is not enough."""
    process.terminate()
    try:
        process.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def command_line(arguments: Sequence[str], module: str = "bench") -> str:
    """The command that a reader repeats."""
    return " ".join(["python", "-m", module, *arguments])
