"""A PostgreSQL 18 with pgvector of our own, for tests, benchmarks and the demo.

    with EmbeddedPostgres(fsync=False) as postgres:
        postgres.create_owner("kaos", "secret")
        postgres.create_database("store", owner="kaos")
        dsn = postgres.dsn("store", user="kaos")

It listens on a free loopback port with SCRAM passwords; the superuser's way in is a private unix
socket. A process that dies leaves its server behind: the next one to start stops it and removes
its files. Whether the launcher lives is told by a lock that the kernel releases with the process.
"""

import secrets
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Literal, Self
from urllib.parse import quote

import psutil

from kaos_dev.postgres_binaries import postgres_bin
from kaos_dev.postgres_directory import ServerDirectory
from kaos_dev.postgres_processes import (
    DEADLINE_SECONDS,
    POLL_SECONDS,
    EmbeddedPostgresError,
    free_port,
    is_ready,
    kill_tree,
    spawn,
)

__all__ = ["SUPERUSER", "EmbeddedPostgres", "EmbeddedPostgresError", "ShutdownMode"]

ShutdownMode = Literal["fast", "immediate"]

SUPERUSER: Final = "postgres"
_HOST: Final = "127.0.0.1"
_SHUTDOWN_SIGNALS: Final[Mapping[ShutdownMode, signal.Signals]] = {
    "fast": signal.SIGINT,
    "immediate": signal.SIGQUIT,
}
# Commits are still written before they are confirmed (`synchronous_commit`), so that they survive
# `kill`; only a crash of the machine can lose them.
_NOT_DURABLE: Final = {"fsync": "off", "full_page_writes": "off"}


class EmbeddedPostgres:
    """One PostgreSQL server that belongs to this process.

    Args:
        directory: Keeps the data here over many starts. Omitted: a temporary directory that
            `close` removes. As root it must be reachable by the user `nobody`.
        fsync: False saves the wait for the disk: for tests, not for benchmarks. What was committed
            still survives `kill` and `restart`.
        settings: More server settings, for example `{"max_connections": "300"}`.
    """

    def __init__(
        self,
        directory: Path | None = None,
        *,
        fsync: bool = True,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self._directory = ServerDirectory(directory)
        self._settings = {**({} if fsync else _NOT_DURABLE), **(settings or {})}
        self._process: subprocess.Popen[bytes] | None = None
        self._port = 0
        self._passwords: dict[str, str] = {}

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def port(self) -> int:
        """The loopback port; it stays the same over stop, kill and start."""
        return self._port

    @property
    def pid(self) -> int:
        """The process id of the postmaster."""
        return self._running().pid

    @property
    def log(self) -> str:
        """What the server wrote to its log so far."""
        return self._directory.log.read_text(errors="replace")

    @staticmethod
    def program(name: str) -> Path:
        """Return the path of one of PostgreSQL's programs, for example `pg_dump`."""
        return postgres_bin() / name

    def dsn(self, database: str = "postgres", user: str | None = None) -> str:
        """Return a connection URL over TCP for the superuser or a role made by `create_owner`."""
        user = user or SUPERUSER
        password = self._passwords.get(user)
        if password is None:
            raise EmbeddedPostgresError(f"role {user!r} is not known here: use create_owner first")
        return (
            f"postgresql://{quote(user, safe='')}:{quote(password, safe='')}"
            f"@{_HOST}:{self._port}/{quote(database, safe='')}"
        )

    def start(self) -> None:
        """Start the server and wait until it answers; make the cluster first if there is none."""
        if self._process is not None and self._process.poll() is None:
            return
        self._directory.claim()
        try:
            if (self._directory.data / "PG_VERSION").exists():
                self._passwords[SUPERUSER] = self._directory.password.read_text().strip()
                self._launch()
            else:
                self._initialise()
                self._launch()
                # In the template, so that every database has it: `vector` is not a trusted
                # extension, and the owners of databases are no superusers.
                self.execute("CREATE EXTENSION vector", database="template1")
        except BaseException:
            self.close()
            raise

    def stop(self, mode: ShutdownMode = "fast") -> None:
        """Stop the server and keep its data, its port and its roles: `start` brings it back."""
        process = self._running()
        process.send_signal(_SHUTDOWN_SIGNALS[mode])
        try:
            process.wait(DEADLINE_SECONDS)
        except subprocess.TimeoutExpired:
            kill_tree(psutil.Process(process.pid))
            process.wait()
        self._process = None

    def restart(self, mode: ShutdownMode = "fast") -> None:
        """Stop and start; `immediate` aborts without a checkpoint, so that WAL is replayed."""
        self.stop(mode)
        self.start()

    def kill(self) -> None:
        """SIGKILL the server with all its processes, as if the machine's power failed."""
        process = self._running()
        if process.poll() is None:
            kill_tree(psutil.Process(process.pid))
            process.wait()
        self._process = None

    def close(self) -> None:
        """Stop the server if it runs, and remove the data if the directory was temporary."""
        if self._process is not None:
            self.stop()
        self._directory.release()

    def create_owner(self, name: str, password: str) -> None:
        """Create an ordinary role for the service: LOGIN, CREATEROLE, bound by row security.

        In a directory that is kept the role may be there already: it gets the password.
        """
        known = self.execute(f"SELECT 1 FROM pg_roles WHERE rolname = {_literal(name)}")  # noqa: S608
        verb = "ALTER" if known else "CREATE"
        self.execute(
            f"{verb} ROLE {_identifier(name)} LOGIN CREATEROLE NOSUPERUSER NOCREATEDB NOBYPASSRLS "
            f"PASSWORD {_literal(password)}"
        )
        self._passwords[name] = password

    def create_database(
        self, name: str, template: str | None = None, owner: str | None = None
    ) -> None:
        """Create a database with pgvector, or a clone of `template`, which nobody may be using.

        `template="template0"` gives one without pgvector.
        """
        self.execute(
            f"CREATE DATABASE {_identifier(name)} TEMPLATE {_identifier(template or 'template1')} "
            f"OWNER {_identifier(owner or SUPERUSER)}"
        )

    def drop_database(self, name: str) -> None:
        """Drop a database and whoever is connected to it."""
        self.execute(f"DROP DATABASE {_identifier(name)} WITH (FORCE)")

    def execute(self, sql: str, database: str = "postgres") -> str:
        """Run SQL as the superuser; return the rows as text, columns separated by `|`."""
        command = [self.program("psql"), "-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1"]
        command += ["-h", self._directory.sockets, "-p", str(self._port)]
        command += ["-U", SUPERUSER, "-d", database]
        psql = subprocess.run(command, input=sql, capture_output=True, text=True, check=False)
        if psql.returncode != 0:
            raise EmbeddedPostgresError(psql.stderr.strip())
        return psql.stdout.rstrip("\n")

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise EmbeddedPostgresError("the server does not run: call start() first")
        return self._process

    def _initialise(self) -> None:
        password = secrets.token_urlsafe(16)
        self._directory.keep_password(password)
        self._passwords[SUPERUSER] = password
        with self._directory.log.open("ab") as log:
            initdb = spawn(
                "initdb",
                *("--pgdata", str(self._directory.data), "--username", SUPERUSER),
                *("--pwfile", str(self._directory.password), "--auth-local=trust"),
                *("--auth-host=scram-sha-256", "--encoding=UTF8", "--locale=C"),
                *("--locale-provider=builtin", "--builtin-locale=C.UTF-8"),
                *("--no-sync", "--no-instructions"),
                folder=self._directory.home,
                log=log,
            )
            result = initdb.wait()
        if result != 0:
            raise EmbeddedPostgresError(f"initdb failed:\n{self.log}")

    def _launch(self) -> None:
        self._port = self._port or free_port(_HOST)
        settings = {
            "listen_addresses": _HOST,
            "port": str(self._port),
            "unix_socket_directories": str(self._directory.sockets),
            **self._settings,
        }
        options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        with self._directory.log.open("ab") as log:
            self._process = spawn(
                "postgres",
                "-D",
                str(self._directory.data),
                *options,
                folder=self._directory.home,
                log=log,
            )
        deadline = time.monotonic() + DEADLINE_SECONDS
        while not is_ready(self._directory.data, self._process.pid):
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise EmbeddedPostgresError(f"PostgreSQL did not start:\n{self.log}")
            time.sleep(POLL_SECONDS)


def _identifier(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
