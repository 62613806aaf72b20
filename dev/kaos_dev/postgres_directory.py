"""The directory of a PostgreSQL server: one process at a time has it, and may keep it or not."""

import os
import shutil
import tempfile
from pathlib import Path
from typing import IO

from kaos_dev.postgres_binaries import require_reachable, unprivileged_user
from kaos_dev.postgres_processes import (
    EmbeddedPostgresError,
    registry,
    remove_if_abandoned,
    stop_leftover,
    try_lock,
)


class ServerDirectory:
    """Where a server keeps its data, its sockets, its log and its superuser's password.

    Args:
        kept: Stays after `release`. Omitted: a temporary directory that `release` removes.
    """

    def __init__(self, kept: Path | None) -> None:
        self._path = kept
        self._temporary = kept is None
        self._lock: IO[str] | None = None

    @property
    def home(self) -> Path:
        """The directory itself."""
        if self._path is None:
            raise EmbeddedPostgresError("the server was never started: call start() first")
        return self._path

    @property
    def data(self) -> Path:
        """The cluster's files."""
        return self.home / "data"

    @property
    def sockets(self) -> Path:
        """The superuser's way in."""
        return self.home / "sockets"

    @property
    def log(self) -> Path:
        """What the server says."""
        return self.home / "postgres.log"

    @property
    def password(self) -> Path:
        """The file with the superuser's password."""
        return self.home / "password"

    def claim(self) -> None:
        """Take it until `release`, and end whatever servers dead processes left behind.

        Raises:
            EmbeddedPostgresError: another process has it.
            RuntimeError: the user that runs PostgreSQL cannot enter it.
        """
        if self._lock is not None:
            return
        with registry() as temporary_servers:
            for directory in temporary_servers.iterdir():
                remove_if_abandoned(directory)
            if self._path is None:
                self._path = Path(tempfile.mkdtemp(prefix="server-", dir=temporary_servers))
            self._path = self._path.resolve()
            self._path.mkdir(parents=True, exist_ok=True)
            self._path.chmod(0o711)
            require_reachable(self._path)
            self._lock = try_lock(self._path)
        if self._lock is None:
            raise EmbeddedPostgresError(f"{self._path} is in use by another process")
        stop_leftover(self.data)
        for folder in (self.data, self.sockets):
            folder.mkdir(mode=0o700, exist_ok=True)
            _give_to_server(folder)

    def keep_password(self, password: str) -> None:
        """Write the superuser's password where only the server and we can read it."""
        self.password.touch(mode=0o600)
        self.password.write_text(password)
        _give_to_server(self.password)

    def release(self) -> None:
        """Let others have it; a temporary one is removed."""
        if self._lock is None:
            return
        if self._temporary:
            with registry():
                shutil.rmtree(self.home)
            self._path = None
        self._lock.close()
        self._lock = None


def _give_to_server(path: Path) -> None:
    if user := unprivileged_user():
        os.chown(path, user.uid, user.gid)
