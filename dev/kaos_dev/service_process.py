"""The memory service as a process of its own, with exactly the environment that it is given."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import IO, Self

import httpx
import psutil

from kaos_dev import tethered
from kaos_memory.settings import ENV_PREFIX

READY_SECONDS = 30.0
_STOP_SECONDS = 30.0

# What a process needs to run at all; nothing else of this machine's environment reaches it.
_INHERITED = ("PATH", "LANG", "TMPDIR", "TZ", "VIRTUAL_ENV")


_STARTER = ThreadPoolExecutor(1, "service-starter")
"""A thread that stays as long as this process: a tethered child dies with the thread."""


class ServiceFailedError(RuntimeError):
    """The service ended, or was not ready in time. The message has the end of its log."""


class PortInUseError(ServiceFailedError):
    """Somebody else listens on the port, or we may not."""


class ServiceProcess:
    """A running service on a loopback port, which dies with this process (see `tethered`).

    Args:
        environment: Its `KAOS_MEMORY_*` variables, and others that it needs.
        log: Where its output goes; kept after it ends.
        port: The port; omitted, a free one.
        module: What runs: the service, or a module that runs it in a way of its own.
    """

    def __init__(
        self,
        environment: Mapping[str, str],
        log: Path,
        port: int | None = None,
        *,
        module: str = "kaos_memory.api.serve",
    ) -> None:
        self.port = port or free_port()
        self.metrics_port = free_port()
        self.log = log
        self._module = module
        inherited = {name: os.environ[name] for name in _INHERITED if name in os.environ}
        self._environment = {
            **inherited,
            **environment,
            f"{ENV_PREFIX}SERVER_HOST": "127.0.0.1",
            f"{ENV_PREFIX}SERVER_PORT": str(self.port),
            f"{ENV_PREFIX}TELEMETRY_METRICS_PORT": str(self.metrics_port),
        }
        self._process: subprocess.Popen[bytes] | None = None
        self._output: IO[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        _type: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self.stop()

    @property
    def url(self) -> str:
        """Where it answers."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        """Its process id."""
        if self._process is None:
            raise ServiceFailedError("the service was not started")
        return self._process.pid

    @property
    def ended(self) -> bool:
        """Whether it was started and has ended by itself."""
        return self._process is not None and self._process.poll() is not None

    def start(self, *, wait: bool = True) -> None:
        """Start it, and wait until it is ready.

        Raises:
            PortInUseError: somebody else listens on its port.
            ServiceFailedError: it ended, or was not ready in time.
        """
        require_free_port(self.port)
        launcher = [sys.executable, "-I", "-S", tethered.__file__, str(os.getpid())]
        self._output = self.log.open("ab")
        try:
            self._process = _STARTER.submit(
                subprocess.Popen[bytes],
                [*launcher, sys.executable, "-m", self._module],
                env=self._environment,
                stdout=self._output,
                stderr=subprocess.STDOUT,
            ).result()
            if wait:
                self.wait_until_ready()
        except BaseException:
            self.stop()
            raise

    def wait_until_ready(self) -> None:
        """Wait until `/readyz` says so, and it is this process that does."""
        deadline = time.monotonic() + READY_SECONDS
        while time.monotonic() < deadline:
            if self._process is None or self._process.poll() is not None:
                raise ServiceFailedError(f"the service ended:\n{self._end_of_log()}")
            try:
                answer = httpx.get(f"{self.url}/readyz", timeout=2)
                if answer.status_code == 200 and self._listens(self._process.pid):
                    return
            except (httpx.TransportError, psutil.NoSuchProcess):
                pass
            time.sleep(0.02)
        self.stop()
        raise ServiceFailedError(f"the service was not ready in time:\n{self._end_of_log()}")

    def kill(self) -> None:
        """SIGKILL, as a crash would end it."""
        self._end(signal.SIGKILL)

    def stop(self) -> int | None:
        """SIGTERM, and wait for the end. Returns the exit code."""
        return self._end(signal.SIGTERM)

    def _listens(self, pid: int) -> bool:
        """Whether the port is that process's own: another's 200 says nothing about it."""
        return any(
            connection.status == psutil.CONN_LISTEN and connection.laddr.port == self.port
            for connection in psutil.Process(pid).net_connections("tcp")
        )

    def _end(self, sent: signal.Signals) -> int | None:
        process, self._process = self._process, None
        code = None
        if process is not None:
            process.send_signal(sent)
            try:
                code = process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                code = process.wait()
        if self._output is not None:
            self._output.close()
        return code

    def _end_of_log(self) -> str:
        return self.log.read_text(errors="replace")[-2_000:]


def require_free_port(port: int) -> None:
    """Check that nobody listens on the loopback port.

    Raises:
        PortInUseError: somebody does, or the port is not ours to use.
    """
    try:
        socket.create_server(("127.0.0.1", port)).close()
    except OSError as error:
        reason = os.strerror(error.errno or 0).lower()
        raise PortInUseError(f"cannot listen on 127.0.0.1:{port}: {reason}") from None


def free_port() -> int:
    """A loopback port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
