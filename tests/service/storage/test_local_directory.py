"""The directory of a local storage: whose it is, who may use it, and what happens when it fails."""

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from kaos_memory.engine.protocols import ModelError
from kaos_memory.storage.local.database import Connection
from kaos_memory.storage.local.storage import LocalStorage
from kaos_memory.storage.protocol import StorageLost, StorageMisconfigured, StorageUnavailable
from kaos_memory.tiers.memory import NewTurn
from kaos_memory.tiers.reach import Owners

from ..conftest import StorageFactory
from .driving import ALICE, fetch, new_fact, turns, work_off
from .test_facts import remember

HERS = Owners(ALICE.principal, ALICE.agent, ALICE.session)


@pytest.fixture
def backend() -> str:
    return "local"


@pytest.fixture
async def local(make_storage: StorageFactory) -> AsyncIterator[LocalStorage]:
    storage = make_storage()
    assert isinstance(storage, LocalStorage)
    await storage.open()
    yield storage
    await storage.close()


@pytest.fixture
def file(directory: Path) -> Path:
    return directory / "kaos_memory.sqlite3"


def files(directory: Path) -> list[Path]:
    return list(directory.iterdir())


def modes(*paths: Path) -> set[int]:
    return {path.stat().st_mode & 0o777 for path in paths}


def spoil(file: Path) -> None:
    file.parent.mkdir()
    file.write_bytes(b"no database at all, but long enough to have a header" * 100)


async def said(storage: LocalStorage) -> list[str]:
    found = await storage.conversations(HERS, 1_000)
    return [turn.content for conversation in found for turn in conversation.turns]


async def test_it_is_made_for_its_owner_alone(local: LocalStorage, directory: Path, file: Path):
    await local.append(ALICE, turns("one"))
    assert modes(directory) == {0o700}
    assert modes(*files(directory)) == {0o600}
    assert file in files(directory)


async def test_what_was_stored_is_there_again(local: LocalStorage, make_storage: StorageFactory):
    await local.append(ALICE, turns("one", "two"))
    await local.close()
    again = make_storage()
    assert isinstance(again, LocalStorage)
    await again.open()
    assert await said(again) == ["one", "two"]
    await again.close()


async def test_a_second_process_is_refused_until_the_first_ends(
    local: LocalStorage, make_storage: StorageFactory, directory: Path
):
    second = make_storage()
    with pytest.raises(StorageMisconfigured, match=r"in use by another process.*external") as error:
        await second.open()
    assert str(directory) in str(error.value)
    await local.close()
    await second.open()
    await second.close()


@pytest.mark.parametrize(
    ("changed", "remedy"),
    [
        ({"store": "tests/other"}, "belongs to the store 'tests/store'.*store.name"),
        ({"model": "other"}, "embedding_model 'embedder'.*models.embedding.model"),
    ],
)
async def test_another_stores_file_is_refused(
    local: LocalStorage, make_storage: StorageFactory, changed: dict[str, str], remedy: str
):
    await local.close()
    with pytest.raises(StorageMisconfigured, match=remedy):
        await make_storage(**changed).open()
    await make_storage().open()  # it holds no lock of the one that was refused


async def test_a_file_of_a_newer_version_is_refused(
    local: LocalStorage, make_storage: StorageFactory, file: Path
):
    await local.close()
    await fetch(file, "PRAGMA user_version = 99")
    with pytest.raises(StorageMisconfigured, match="newer version"):
        await make_storage().open()


async def test_a_file_that_is_no_database_is_refused(make_storage: StorageFactory, file: Path):
    spoil(file)
    with pytest.raises(StorageMisconfigured, match="damaged; restore it from a backup"):
        await make_storage().open()


async def test_a_directory_that_cannot_be_made_is_named(make_storage: StorageFactory):
    with pytest.raises(StorageMisconfigured, match=r"/dev/null/memory cannot be written.*path"):
        await make_storage(to="/dev/null/memory").open()


async def test_a_full_disk_is_said_and_nothing_is_half_stored(local: LocalStorage):
    await local.append(ALICE, turns("one"))
    pages = await local._db.alone(lambda c: c.execute("PRAGMA page_count").fetchone()[0])
    await local._db.alone(lambda c: c.execute(f"PRAGMA max_page_count = {pages}"))
    with pytest.raises(StorageUnavailable, match=r"^SQLITE_FULL$"):
        await local.append(ALICE, turns("secret" * 100_000))
    await local._db.alone(lambda c: c.execute("PRAGMA max_page_count = 1000000"))
    await local.append(ALICE, turns("two"))
    assert await said(local) == ["one", "two"]


async def test_a_locked_file_is_unavailable_for_now(local: LocalStorage, file: Path):
    await local._db.alone(lambda c: c.execute("PRAGMA busy_timeout = 50"))
    other = sqlite3.connect(file, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StorageUnavailable, match=r"^SQLITE_BUSY$"):
        await local.append(ALICE, turns("one"))
    other.execute("ROLLBACK")
    other.close()
    await local.append(ALICE, turns("two"))
    assert await said(local) == ["two"]


async def test_a_file_that_was_taken_away_is_opened_anew(local: LocalStorage, file: Path):
    await local.append(ALICE, turns("one"))
    for path in file.parent.glob("kaos_memory.sqlite3*"):
        path.unlink()
    with pytest.raises(StorageLost):
        await local.append(ALICE, turns("never to be seen again"))
    await local.ping()
    assert await said(local) == []
    await local.append(ALICE, turns("two"))
    assert await said(local) == ["two"]


async def test_before_it_is_open_everything_is_unavailable(make_storage: StorageFactory):
    storage = make_storage()
    with pytest.raises(StorageUnavailable):
        await storage.append(ALICE, turns("one"))


async def test_a_write_that_is_given_up_leaves_nothing_and_no_transaction(local: LocalStorage):
    begun, go_on = threading.Event(), threading.Event()

    def slow(connection: Connection) -> None:
        local._append(connection, ALICE, turns("given up"))
        begun.set()
        go_on.wait()

    writing = asyncio.create_task(local._db.write(slow))
    await asyncio.to_thread(begun.wait)
    writing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await writing
    go_on.set()
    await local.append(ALICE, turns("stored"))
    assert await said(local) == ["stored"]


async def test_reads_do_not_wait_for_a_write(local: LocalStorage):
    await local.append(ALICE, turns("one"))
    begun, go_on = threading.Event(), threading.Event()

    def slow(connection: Connection) -> None:
        connection.execute("UPDATE sessions SET window_tokens = 0")
        begun.set()
        go_on.wait()

    writing = asyncio.create_task(local._db.write(slow))
    await asyncio.to_thread(begun.wait)
    async with asyncio.timeout(5):
        assert await said(local) == ["one"]
    assert not writing.done()
    go_on.set()
    await writing


async def test_readers_cannot_write(local: LocalStorage):
    with pytest.raises(StorageUnavailable, match="SQLITE_READONLY"):
        await local._db.read(lambda c: c.execute("DELETE FROM sessions"))


async def test_the_first_vector_decides_how_long_all_are(local: LocalStorage):
    await remember(local, ALICE, new_fact("tea", [1.0] * 8))
    with pytest.raises(ModelError, match="9 dimensions where this store has 8; set models"):
        await local.search(HERS, "tea", [1.0] * 9, 10, None)
    with pytest.raises(ModelError, match="9 dimensions"):
        await local.neighbours(ALICE, [1.0] * 9, 10)
    with pytest.raises(ModelError, match="9 dimensions"):
        await remember(local, ALICE, new_fact("rain", [1.0] * 9))
    assert [fact.text for fact in await local.newest_facts(HERS, 10)] == ["tea"]


async def test_ids_are_not_used_again_after_an_erasure(local: LocalStorage, file: Path):
    await local.append(ALICE, turns("one"))
    [(first,)] = await fetch(file, "SELECT id FROM sessions")
    await fetch(file, "DELETE FROM turns")
    await fetch(file, "DELETE FROM work")
    await fetch(file, "DELETE FROM sessions")
    await local.append(ALICE, turns("two"))
    [(second,)] = await fetch(file, "SELECT id FROM sessions")
    assert second > first


async def test_dates_before_1970_come_back(local: LocalStorage):
    long_ago = datetime(1888, 6, 13, 1, 2, 3, 4, tzinfo=UTC)
    await local.append(ALICE, [NewTurn("user", "tea", 60, said_at=long_ago)] * 3)
    [conversation] = await local.conversations(HERS, 1_000)
    assert {turn.said_at for turn in conversation.turns} == {long_ago}
    await work_off(local)
    assert await local.search(HERS, "tea 1888", [1.0] * 8, 10, None)
