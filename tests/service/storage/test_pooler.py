"""Behind PgBouncer in transaction mode, where each transaction may run on another connection."""

import asyncio
import contextlib
import os
import shutil
import subprocess
from collections.abc import AsyncIterator

import asyncpg
import pytest

from kaos_dev.embedded_postgres import EmbeddedPostgres
from kaos_dev.service_process import free_port
from kaos_memory.storage.postgres.storage import PostgresStorage
from kaos_memory.tiers.memory import Owner
from kaos_memory.tiers.reach import Owners

from ..conftest import OWNER, PASSWORD, StorageFactory
from .driving import turns, work_off

PGBOUNCER = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin")

pytestmark = pytest.mark.skipif(PGBOUNCER is None, reason="pgbouncer is not installed")


@pytest.fixture
def backend() -> str:
    return "postgres"


@pytest.fixture
async def pooled_dsn(
    postgres: EmbeddedPostgres, dsn: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[str]:
    """The test's database through a pool of fewer connections than the storage has."""
    database, port = dsn.rpartition("/")[2], free_port()
    folder = tmp_path_factory.mktemp("pgbouncer")
    users, settings = folder / "users", folder / "pgbouncer.ini"
    users.write_text(f'"{OWNER}" "{PASSWORD}"\n')
    settings.write_text(
        f"[databases]\n{database} = host=127.0.0.1 port={postgres.port}\n"
        f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\n"
        f"auth_type = plain\nauth_file = {users}\npool_mode = transaction\n"
        "default_pool_size = 3\n"
    )
    command = [str(PGBOUNCER), "-q", str(settings)]
    if os.geteuid() == 0:  # it refuses to run as root
        for path in (folder, *folder.parents[:3]):
            path.chmod(path.stat().st_mode | 0o055)
        command[1:1] = ["-u", "nobody"]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)  # noqa: ASYNC220
    to = f"postgresql://{OWNER}:{PASSWORD}@127.0.0.1:{port}/{database}"
    try:
        await _answers(to)
        yield to
    finally:
        process.terminate()
        process.wait()


async def _answers(dsn: str) -> None:
    async with asyncio.timeout(10):
        connection = None
        while connection is None:
            with contextlib.suppress(OSError):
                connection = await asyncpg.connect(dsn, statement_cache_size=0)
            await asyncio.sleep(0.02)
        await connection.close()


async def test_a_store_behind_a_pooler_keeps_all_its_promises(
    make_storage: StorageFactory, pooled_dsn: str
):
    storage = make_storage(to=pooled_dsn)
    assert isinstance(storage, PostgresStorage)
    await storage.open()
    assert storage._db.schema.pooled
    owners = [Owner(f"user-{n}", "kaos://agent/ns/helper", "s-1") for n in range(8)]

    async def talk(owner: Owner) -> None:
        for n in range(12):
            await storage.append(owner, turns(f"{owner.principal} {n}"))

    await asyncio.gather(*(talk(owner) for owner in owners))
    await work_off(storage)
    for owner in owners:
        [found] = await storage.conversations(Owners(owner.principal, None, "s-1"), 1_000)
        assert found.turns[-1].content == f"{owner.principal} 11"
        facts, _ = await storage.list_facts(Owners(owner.principal), 100, None)
        assert {fact.text.split()[0] for fact in facts} == {owner.principal}
    await storage.close()


async def test_without_a_pooler_statements_are_prepared_once(
    make_storage: StorageFactory, dsn: str
):
    storage = make_storage(to=dsn)
    assert isinstance(storage, PostgresStorage)
    await storage.open()
    assert not storage._db.schema.pooled
    await storage.close()
