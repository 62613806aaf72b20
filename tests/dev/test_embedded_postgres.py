import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import asyncpg
import psutil
import pytest

from kaos_dev.embedded_postgres import EmbeddedPostgres, EmbeddedPostgresError

OWNER = "kaos owner"
PASSWORD = "it's @ secret/"


@pytest.fixture(scope="module")
def postgres() -> Iterator[EmbeddedPostgres]:
    with EmbeddedPostgres(fsync=False) as server:
        server.create_owner(OWNER, PASSWORD)
        server.create_database("origin", owner=OWNER)
        server.execute("CREATE TABLE turns AS SELECT 'tea' AS content", database="origin")
        yield server


@pytest.fixture
def directory() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


async def test_an_ordinary_owner_finds_pgvector_over_tcp(postgres: EmbeddedPostgres):
    connection = await asyncpg.connect(postgres.dsn("origin", user=OWNER))
    try:
        assert await connection.fetchval("SELECT '[0,3]'::vector <-> '[4,0]'") == 5.0
        assert await connection.fetchval("SHOW server_version_num") >= "180000"
        await connection.execute("CREATE TABLE owned (id int)")
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await connection.fetch("SELECT * FROM turns")
    finally:
        await connection.close()


async def test_a_wrong_password_is_refused(postgres: EmbeddedPostgres):
    with pytest.raises(asyncpg.InvalidPasswordError):
        await asyncpg.connect(postgres.dsn("origin"), password="wrong")


def test_the_owner_may_create_roles_but_is_bound_by_row_security(postgres: EmbeddedPostgres):
    rights = postgres.execute(
        "SELECT rolcanlogin, rolcreaterole, rolsuper, rolcreatedb, rolbypassrls "
        f"FROM pg_roles WHERE rolname = '{OWNER}'"
    )
    assert rights == "t|t|f|f|f"


def test_a_clone_holds_the_rows_of_its_template(postgres: EmbeddedPostgres):
    postgres.create_database("clone", template="origin", owner=OWNER)
    assert postgres.execute("SELECT content FROM turns", database="clone") == "tea"
    postgres.drop_database("clone")
    with pytest.raises(EmbeddedPostgresError, match='database "clone" does not exist'):
        postgres.execute("SELECT 1", database="clone")


def test_a_database_without_pgvector_can_be_had(postgres: EmbeddedPostgres):
    postgres.create_database("bare", template="template0")
    extensions = "SELECT extname FROM pg_extension ORDER BY 1"
    assert postgres.execute(extensions, database="bare") == "plpgsql"
    assert postgres.execute(extensions, database="origin") == "plpgsql\nvector"


def test_the_dsn_of_an_unknown_role_says_what_to_do(postgres: EmbeddedPostgres):
    with pytest.raises(EmbeddedPostgresError, match="use create_owner first"):
        postgres.dsn(user="stranger")


def test_pg_dump_is_at_hand(postgres: EmbeddedPostgres):
    dump = subprocess.run(
        [postgres.program("pg_dump"), "--dbname", postgres.dsn("origin")],
        check=True,
        capture_output=True,
        text=True,
    )
    assert "\ntea\n" in dump.stdout


@pytest.mark.parametrize("way", ["fast", "immediate", "kill", "stop"])
def test_committed_rows_and_the_address_survive(postgres: EmbeddedPostgres, way: str):
    before, dsn = postgres.pid, postgres.dsn("origin", user=OWNER)
    postgres.execute(f"INSERT INTO turns VALUES ('{way}')", database="origin")
    match way:
        case "fast" | "immediate":
            postgres.restart(way)
        case "kill":
            postgres.kill()
            postgres.start()
        case _:
            postgres.stop()
            with pytest.raises(EmbeddedPostgresError, match=r"call start\(\) first"):
                postgres.restart()
            postgres.start()
    rows = f"SELECT count(*) FROM turns WHERE content = '{way}'"
    assert postgres.execute(rows, database="origin") == "1"
    assert postgres.pid != before
    assert postgres.dsn("origin", user=OWNER) == dsn


def test_settings_reach_the_server_and_it_is_durable_by_default():
    with EmbeddedPostgres(settings={"max_connections": "33"}) as server:
        assert server.execute("SHOW max_connections") == "33"
        assert server.execute("SHOW fsync") == "on"


def test_closing_leaves_no_process_and_no_file():
    with EmbeddedPostgres(fsync=False) as server:
        pid = server.pid
        data = Path(server.execute("SHOW data_directory"))
    assert not psutil.pid_exists(pid)
    assert not data.parent.exists()


async def test_a_named_directory_keeps_its_data_and_serves_one_process_at_a_time(directory: Path):
    with EmbeddedPostgres(directory, fsync=False) as server:
        server.create_owner(OWNER, "first")
        server.execute("CREATE TABLE kept (id int)")
        with pytest.raises(EmbeddedPostgresError, match="in use by another process"):
            EmbeddedPostgres(directory).start()
    with EmbeddedPostgres(directory, fsync=False) as server:
        assert server.execute("SELECT count(*) FROM kept") == "0"
        assert server.execute("SHOW timezone") == "UTC"
        server.create_owner(OWNER, PASSWORD)
        connection = await asyncpg.connect(server.dsn(user=OWNER))
        await connection.close()


def test_the_next_start_ends_the_server_of_a_process_that_was_killed():
    program = """
import os, signal
from kaos_dev.embedded_postgres import EmbeddedPostgres
server = EmbeddedPostgres(fsync=False)
server.start()
print(server.pid, server.execute("SHOW data_directory"), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    victim = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert victim.returncode == -signal.SIGKILL
    pid, data = victim.stdout.split()
    with EmbeddedPostgres(fsync=False):
        assert not Path(data).exists()
        assert not _runs(int(pid))


def test_a_stale_pid_file_never_ends_a_process_that_is_not_ours(directory: Path):
    (directory / "data").mkdir()
    with subprocess.Popen(["sleep", "60"]) as bystander:
        (directory / "data" / "postmaster.pid").write_text(f"{bystander.pid}\n")
        with pytest.raises(EmbeddedPostgresError, match="initdb failed"):
            EmbeddedPostgres(directory).start()
        assert bystander.poll() is None
        bystander.kill()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root runs PostgreSQL as another user")
def test_root_is_told_which_folder_is_closed_to_the_server(tmp_path: Path):
    tmp_path.chmod(0o700)
    with pytest.raises(RuntimeError, match=f"{tmp_path} is closed to others"):
        EmbeddedPostgres(tmp_path / "postgres").start()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root runs PostgreSQL as another user")
def test_a_umask_that_closes_folders_does_no_harm(directory: Path):
    """Nor do folders that an earlier run left closed."""
    directory.chmod(0o711)
    for closed in ("kaos-postgres-0", "cache"):
        (directory / closed).mkdir(mode=0o700)
    code = (
        "import os; os.umask(0o077)\n"
        "from kaos_dev.embedded_postgres import EmbeddedPostgres\n"
        "with EmbeddedPostgres(fsync=False) as server: print(server.execute('SELECT 1'))"
    )
    for cache in ("cache", "new/below"):
        places = {"TMPDIR": str(directory), "KAOS_CACHE_DIR": str(directory / cache)}
        done = subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, **places},
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.stdout, done.stderr) == ("1\n", "")


def _runs(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
