"""The life and death of PostgreSQL's processes: whose they are, and how they end."""

import contextlib
import fcntl
import os
import shutil
import socket
import stat
import subprocess
import tempfile
import time
from collections.abc import Generator
from pathlib import Path
from typing import IO, Final

import psutil

from kaos_dev.postgres_binaries import postgres_bin, unprivileged_user

DEADLINE_SECONDS: Final = 30.0
POLL_SECONDS: Final = 0.005


class EmbeddedPostgresError(RuntimeError):
    """The server could not be started, stopped or told something; the message says why."""


def spawn(program: str, *arguments: str, folder: Path, log: IO[bytes]) -> subprocess.Popen[bytes]:
    """Start one of PostgreSQL's programs as the user that may run it."""
    user = unprivileged_user()
    return subprocess.Popen(
        [postgres_bin() / program, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        cwd=folder,
        # A given time zone saves `initdb` the search for the machine's.
        env={"PATH": os.defpath, "LC_ALL": "C", "TZ": "UTC"},
        user=user.uid if user else None,
        group=user.gid if user else None,
        extra_groups=[] if user else None,
        # Ctrl-C is for us; the server goes when we say so.
        start_new_session=True,
    )


@contextlib.contextmanager
def registry() -> Generator[Path]:
    """Yield the folder of this user's temporary servers while no other process looks at it."""
    folder = Path(tempfile.gettempdir()) / f"kaos-postgres-{os.geteuid()}"
    folder.mkdir(exist_ok=True)
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
        raise EmbeddedPostgresError(f"{folder} belongs to somebody else: set TMPDIR")
    folder.chmod(0o711)  # the umask may have closed it, or that of an earlier run
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield folder
    finally:
        os.close(descriptor)


def try_lock(directory: Path) -> IO[str] | None:
    """Take the directory for as long as the returned file stays open; None: it is taken."""
    lock = (directory / "launcher.lock").open("a")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        return None
    return lock


def remove_if_abandoned(directory: Path) -> None:
    """Stop and delete the temporary server whose launcher died."""
    lock = try_lock(directory)
    if lock is not None:
        with lock:
            stop_leftover(directory / "data")
            shutil.rmtree(directory)


def stop_leftover(data: Path) -> None:
    """Stop the server whose launcher died; a process id that now means another process is not."""
    lines = _pid_file(data)
    if not lines:
        return
    try:
        process = psutil.Process(int(lines[0]))
        command = process.cmdline()
    except psutil.NoSuchProcess:
        return
    if str(data) in command and Path(command[0]).name == "postgres":
        kill_tree(process)


def kill_tree(postmaster: psutil.Process) -> None:
    """SIGKILL the postmaster first, so that it restarts nothing, then its children; await them.

    Raises:
        EmbeddedPostgresError: A process is still there after the deadline.
    """
    doomed = [postmaster, *postmaster.children(recursive=True)]
    for process in doomed:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    deadline = time.monotonic() + DEADLINE_SECONDS
    while any(map(_is_alive, doomed)):
        if time.monotonic() > deadline:
            raise EmbeddedPostgresError(f"could not kill {doomed}")
        time.sleep(POLL_SECONDS)


def _is_alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _pid_file(data: Path) -> list[str]:
    try:
        return (data / "postmaster.pid").read_text().splitlines()
    except FileNotFoundError:
        return []


def is_ready(data: Path, pid: int) -> bool:
    """Tell whether that postmaster accepts connections."""
    lines = _pid_file(data)
    return len(lines) >= 8 and lines[0] == str(pid) and lines[7].strip() == "ready"


def free_port(host: str) -> int:
    """Return a port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])
