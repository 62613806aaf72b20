"""Start daemons that outlive this process, and later end exactly those.

A pid alone is no proof: it may belong to another process by now. A daemon's record holds its start
time and its command as well, and is written by the daemon itself before it becomes the program, so
that there is no moment in which it runs without a record. Signals go through a pidfd, which is
opened before the check: the process that was checked is the one that gets the signal.
"""

import json
import os
import select
import signal
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from tests.e2e.cluster.commands import SYSTEM_PATH, tail
from tests.e2e.cluster.errors import ClusterError
from tests.e2e.cluster.paths import STATE

RECORDS = STATE / "run"
LOGS = STATE / "logs"
RECORD_SECONDS = 5.0
KILL_SECONDS = 10.0

# `read` is a builtin, so /proc/self is the shell, which `exec` turns into the daemon itself.
_RECORD_AND_BECOME = 'read -r stat </proc/self/stat; echo "$stat" >"$0"; exec "$@"'


@dataclass(frozen=True)
class Daemon:
    """A long-running program of the cluster."""

    name: str
    command: tuple[str, ...]

    @property
    def log(self) -> Path:
        """Where its output goes."""
        return LOGS / f"{self.name}.log"

    def start(self) -> None:
        """Start it in its own session, detached from this process."""
        RECORDS.mkdir(parents=True, exist_ok=True)
        LOGS.mkdir(parents=True, exist_ok=True)
        stat = RECORDS / f"{self.name}.stat"
        stat.unlink(missing_ok=True)
        (RECORDS / f"{self.name}.command").write_text(json.dumps(self.command))
        # Not this process's environment: a proxy set for the internet must not catch cluster calls.
        with self.log.open("ab") as log:
            subprocess.run(
                ["setsid", "--fork", "sh", "-c", _RECORD_AND_BECOME, str(stat), *self.command],
                env={"PATH": SYSTEM_PATH, "LANG": "C.UTF-8"},
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                check=True,
            )
        deadline = time.monotonic() + RECORD_SECONDS
        while not (stat.exists() and stat.read_text().endswith("\n")):
            if time.monotonic() > deadline:
                raise ClusterError(f"{self.name} did not start, see {self.log}")
            time.sleep(0.01)

    def check(self) -> None:
        """Raise `ClusterError` with the tail of the log if the daemon has ended."""
        if running(self.name) is None:
            raise ClusterError(
                f"{self.name} ended, log {self.log}:\n{tail(self.log.read_text(errors='replace'))}"
            )


def running(name: str) -> int | None:
    """Return the pid of the recorded daemon `name` if that very process still runs."""
    with suppress(OSError, ValueError):
        pid, start = _pid_and_start((RECORDS / f"{name}.stat").read_text())
        words = cast("list[str]", json.loads((RECORDS / f"{name}.command").read_text()))
        if _alive_since(pid) == start and command_of(pid)[-len(words) :] == words:
            return pid
    return None


def recorded() -> list[str]:
    """Return the names of all daemons with a record, running or not."""
    return sorted(record.stem for record in RECORDS.glob("*.stat"))


def kill_recorded(names: Sequence[str]) -> None:
    """End the daemons `names` and wait until they are gone.

    SIGKILL at once: whoever stops a part of this cluster throws all of its state away.
    """
    handles: dict[str, int] = {}
    try:
        for name in names:
            handle = _open_daemon(name)
            if handle is not None:
                handles[name] = handle
                signal.pidfd_send_signal(handle, signal.SIGKILL)
        for name, handle in handles.items():
            if not select.select([handle], [], [], KILL_SECONDS)[0]:
                raise ClusterError(f"{name} survived SIGKILL for {KILL_SECONDS:.0f} s")
    finally:
        for handle in handles.values():
            os.close(handle)
    for name in names:
        (RECORDS / f"{name}.stat").unlink(missing_ok=True)
        (RECORDS / f"{name}.command").unlink(missing_ok=True)


def command_of(pid: int) -> list[str]:
    """Return the command line of `pid`; empty for a kernel thread or a zombie."""
    return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")[:-1]


def _open_daemon(name: str) -> int | None:
    pid = running(name)
    if pid is None:
        return None
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return None
    if running(name) == pid:
        return handle
    os.close(handle)
    return None


def _alive_since(pid: int) -> str | None:
    text = Path(f"/proc/{pid}/stat").read_text()
    state = text.rpartition(")")[2].split()[0]
    return None if state in {"Z", "X"} else _pid_and_start(text)[1]


def _pid_and_start(stat: str) -> tuple[int, str]:
    """Return the pid and the start time (field 22, ticks since boot) of a /proc/*/stat line."""
    head, _, fields = stat.rpartition(")")
    return int(head.split()[0]), fields.split()[19]
