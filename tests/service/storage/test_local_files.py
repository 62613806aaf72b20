"""What the files of a local storage hold: no trace of an erasure, and all else after a crash."""

import asyncio
import signal
import sqlite3
import sys
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import pytest

from kaos_memory.contract import ScopeLevel
from kaos_memory.storage.local import new_facts
from kaos_memory.storage.local import vectors as stored
from kaos_memory.storage.local.index import FactIndex, generation
from kaos_memory.storage.local.storage import LocalStorage
from kaos_memory.storage.prepared_facts import prepare
from kaos_memory.tiers.memory import NewFact, Owner
from kaos_memory.tiers.reach import Owners, Reach

from .crashing import remember, storage_in
from .driving import ALICE, BOB, embedding, fetch, new_fact, turns, work_off

HERS = Owners(ALICE.principal)
SECRET = "alice-said-this"
USER = Reach(ScopeLevel.USER, HERS, None)


@pytest.fixture
def backend() -> str:
    return "local"


@pytest.fixture
def file(directory: Path) -> Path:
    return directory / "kaos_memory.sqlite3"


@pytest.fixture
async def local(directory: Path) -> AsyncIterator[LocalStorage]:
    """A store that makes an index where somebody has more than 20 facts."""
    storage = storage_in(str(directory))
    await storage.open()
    yield storage
    await storage.close()


async def crash(directory: Path, step: str) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.service.storage.crashing", str(directory), step
    )
    assert await process.wait() == -signal.SIGKILL


def traces(directory: Path, text: str) -> list[str]:
    """The files that hold a text."""
    return [
        path.name
        for path in directory.rglob("*")
        if path.is_file() and text.encode() in path.read_bytes()
    ]


def indexes(directory: Path) -> list[Path]:
    return list(directory.glob("*chroma*"))


def contents(directory: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in directory.iterdir() if path.is_file()}


async def talk(storage: LocalStorage) -> None:
    """Two users talk for so long that what they said is in all tiers."""
    for at in range(30):
        for owner, name in ((ALICE, SECRET), (BOB, "bob-said-that")):
            session = Owner(owner.principal, owner.agent, f"s-{at % 2}")
            text = f"{name} {at} {'word ' * (at * 37 % 900)}"
            await storage.append(session, turns(text, text[:300]))
    await work_off(storage)


def leave_a_copy(file: Path, text: str) -> None:
    """Put a text into gaps that no row uses, as SQLite does when it moves rows between pages."""
    content = bytearray(file.read_bytes())
    size = int.from_bytes(content[16:18], "big")
    for page in range(size, len(content), size):
        kind, cells = content[page], int.from_bytes(content[page + 3 : page + 5], "big")
        gap = page + 8 + 2 * cells
        start = page + int.from_bytes(content[page + 5 : page + 7], "big")
        if kind in {0x0A, 0x0D} and start - gap > len(text):
            content[gap : gap + len(text)] = text.encode()
    file.write_bytes(content)


async def test_an_erasure_leaves_no_trace_in_any_file(local: LocalStorage, directory: Path):
    await talk(local)
    await local._index.up_to_date()
    assert traces(directory, SECRET)
    receipt = await local.erase(USER, dry_run=False)
    assert receipt.residue == 0
    assert receipt.facts > 20
    assert not traces(directory, SECRET)
    assert not traces(directory, "alice")
    assert traces(directory, "bob-said-that")
    await local.close()
    assert not traces(directory, SECRET)


async def test_an_erasure_finds_copies_that_no_row_knows(
    local: LocalStorage, directory: Path, file: Path
):
    await talk(local)
    await local.close()
    leave_a_copy(file, "a-stale-copy")
    await local.open()
    await local.erase(Reach(ScopeLevel.USER, Owners("nobody"), None), dry_run=False)
    assert traces(directory, "a-stale-copy")  # nothing was erased, so nothing is rewritten
    await local.erase(USER, dry_run=False)
    assert not traces(directory, "a-stale-copy")
    assert len((await local.list_facts(Owners("bob"), 1_000, None))[0]) > 20


async def test_a_plan_of_an_erasure_scrubs_nothing(local: LocalStorage, directory: Path):
    await talk(local)
    before = contents(directory)
    plan = await local.erase(USER, dry_run=True)
    assert plan.residue > 0
    assert contents(directory) == before


@pytest.mark.parametrize("left", ["turns", "facts"])
async def test_rows_that_a_second_scan_still_finds_are_counted(
    local: LocalStorage, file: Path, left: str
):
    """Should a deletion ever miss rows, the receipt says so and nothing is called forgotten."""
    await talk(local)
    await fetch(
        file, f"CREATE TRIGGER kept BEFORE DELETE ON {left} BEGIN SELECT RAISE(IGNORE); END"
    )
    await fetch(
        file, "CREATE TRIGGER too BEFORE DELETE ON sessions BEGIN SELECT RAISE(IGNORE); END"
    )
    receipt = await local.erase(USER, dry_run=False)
    assert receipt.residue > 0


@pytest.mark.parametrize(
    ("step", "erased"),
    [
        ("before the erasure is committed", False),
        ("before the file is scrubbed", True),
        ("before the index is discarded", True),
    ],
)
async def test_a_crash_during_an_erasure_leaves_all_or_no_trace(
    local: LocalStorage, directory: Path, file: Path, step: str, erased: bool
):
    await talk(local)
    await local._index.up_to_date()
    before = await local.list_facts(HERS, 1_000, None)
    await local.close()
    leave_a_copy(file, SECRET)
    await crash(directory, step)
    await local.open()
    if not erased:
        assert await local.list_facts(HERS, 1_000, None) == before
        await local.erase(USER, dry_run=False)
    assert not traces(directory, SECRET)
    assert indexes(directory) == []
    assert await local.list_facts(HERS, 1_000, None) == ([], None)


@pytest.mark.parametrize(
    "step", ["before Chroma is told", "before it is noted that Chroma was told"]
)
async def test_after_a_crash_between_the_two_the_index_is_mended(
    local: LocalStorage, directory: Path, step: str
):
    await remember(local, *(f"fact {at}" for at in range(30)))
    await local.close()
    await crash(directory, step)
    await local.open()
    await indexed_exactly(local)
    assert len((await local.list_facts(HERS, 1_000, None))[0]) == 31
    found = await local.search(HERS, "newest", embedding(0), 31, None)
    assert found[0].text == "the newest fact"


async def indexed_exactly(storage: LocalStorage) -> None:
    assert await storage._index.up_to_date()
    held = storage._index._collection.get(include=["embeddings"])
    by_number = dict(zip(map(int, held["ids"]), held["embeddings"], strict=True))
    rows = await storage._db.read(lambda c: c.execute("SELECT * FROM vectors").fetchall())
    assert by_number.keys() == {row["number"] for row in rows}
    for row in rows:
        stored = np.frombuffer(row["embedding"], "<f2").astype(np.float32)
        assert np.allclose(by_number[row["number"]], stored)


async def test_an_index_whose_files_are_lost_or_old_is_made_anew(
    local: LocalStorage, directory: Path
):
    await remember(local, *(f"fact {at}" for at in range(30)))
    await local._index.up_to_date()
    await local.close()
    [files] = indexes(directory)
    files.rename(directory / "kept")
    await local.open()
    await indexed_exactly(local)
    await remember(local, "newer")
    await indexed_exactly(local)
    await local.close()
    for path in files.iterdir():
        if path.is_file():
            path.unlink()
    (directory / "kept" / "chroma.sqlite3").rename(files / "chroma.sqlite3")
    await local.open()
    await local._index.up_to_date()
    local._index._retry_at = 0
    await indexed_exactly(local)


async def test_the_index_follows_what_is_added_and_deleted(local: LocalStorage, file: Path):
    await remember(local, *(f"fact {at}" for at in range(30)))
    await indexed_exactly(local)
    await remember(local, "one more")
    await fetch(file, "PRAGMA foreign_keys = ON")
    await local._db.write(lambda c: c.execute("DELETE FROM facts WHERE text LIKE '%1_'"))
    await indexed_exactly(local)
    [left] = await fetch(file, "SELECT count(*) FROM unindexed")
    assert left[0] == 0


async def test_few_facts_are_never_indexed(local: LocalStorage, directory: Path):
    await remember(local, *(f"fact {at}" for at in range(20)))
    await local.search(HERS, "fact", embedding(0), 10, None)
    await local.close()
    assert indexes(directory) == []


async def test_the_index_is_made_for_owners_of_many_facts_and_once(
    local: LocalStorage, directory: Path
):
    await remember(local, *(f"fact {at}" for at in range(20)))
    assert await local.index_large_owners() == 0
    assert indexes(directory) == []
    await remember(local, "one more")
    assert await local.index_large_owners() == 1
    assert local._index._ready
    assert await local.index_large_owners() == 0


async def test_closing_does_not_wait_for_an_index_that_is_being_made(
    local: LocalStorage, monkeypatch: pytest.MonkeyPatch
):
    await remember(local, *(f"fact {at}" for at in range(30)))
    monkeypatch.setattr("kaos_memory.storage.local.index._BATCH", 1)
    applied = threading.Event()
    really = FactIndex._apply

    def slowly(index: FactIndex) -> bool:
        applied.set()
        return really(index)

    monkeypatch.setattr(FactIndex, "_apply", slowly)
    making = asyncio.create_task(local.index_large_owners())
    await asyncio.to_thread(applied.wait)
    await local.close()
    assert await making == 1
    await local.open()
    [left] = await local._db.read(lambda c: c.execute("SELECT count(*) FROM unindexed").fetchone())
    assert left > 0
    await indexed_exactly(local)


async def test_chroma_holds_vectors_and_nothing_that_was_said(local: LocalStorage, directory: Path):
    await remember(local, *(f"fact {at} of {SECRET}" for at in range(30)))
    await local._index.up_to_date()
    await local.close()
    [files] = indexes(directory)
    assert [path.name for path in files.rglob("*") if path.is_file()] == ["chroma.sqlite3"]
    for text in ("fact 1", SECRET, "alice", "helper", ALICE.session):
        assert not traces(files, text)


async def test_chroma_asks_nobody_on_the_network(directory: Path):
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.service.storage.crashing", str(directory), "if it connects"
    )
    assert await process.wait() == 0


async def test_an_erasure_gives_the_index_up_and_the_next_search_makes_another(
    local: LocalStorage, directory: Path
):
    await remember(local, *(f"fact {at}" for at in range(30)))
    await local.append(BOB, turns("his", infer=False))
    await work_off(local)
    await local._index.up_to_date()
    [old] = indexes(directory)
    await local.erase(Reach(ScopeLevel.USER, Owners("bob"), None), dry_run=False)
    assert old not in indexes(directory)
    assert await local._db.read(generation) is None
    assert len(await local.search(HERS, "fact", embedding(0), 100, None)) == 30
    await indexed_exactly(local)


async def test_a_broken_index_is_done_without(local: LocalStorage, monkeypatch: pytest.MonkeyPatch):
    await remember(local, *(f"fact {at}" for at in range(30)))
    await local._index.up_to_date()
    monkeypatch.setattr(local._index, "_collection", None)
    monkeypatch.setattr("kaos_memory.storage.local.search._LEAST_NEAREST", 5)
    found = await local.search(HERS, "fact 3", embedding(3), 1, None)
    assert [fact.text for fact in found] == ["fact 3"]
    assert not local._index._ready


async def many(storage: LocalStorage, sizes: dict[str, int], dims: int) -> None:
    """Facts with random vectors that are a little alike, as those of texts are."""
    generator = np.random.default_rng(7)
    common = generator.normal(size=dims)
    for name, count in sizes.items():
        vectors = generator.normal(size=(count, dims)) + 0.5 * common
        new = [
            NewFact(f"{name} {at}", vectors[at].tolist(), 1, 1, new_fact("").said_at)
            for at in range(count)
        ]
        owner = Owner(name, ALICE.agent, "s")
        ready = prepare(new, stored.encode)
        await storage._db.write(lambda c, o=owner, n=ready: new_facts.add(c, o, ("m", "p"), n))


@pytest.mark.parametrize("indexed", [True, False])
async def test_above_the_limit_nearly_all_of_the_nearest_are_found(
    local: LocalStorage, indexed: bool
):
    await many(local, {"alice": 2_500, "bob": 1_500}, 48)
    if indexed:
        assert await local._index.up_to_date()
    generator = np.random.default_rng(8)
    exact = {row["number"]: row["embedding"] for row in await _vectors(local, "alice")}
    matrix = np.stack([np.frombuffer(each, "<f2") for each in exact.values()]).astype(np.float32)
    hits = 0
    for _ in range(20):
        question = generator.normal(size=48)
        best = np.argsort(-(matrix @ question.astype(np.float32)))[:100]
        found = await local._nearest(HERS, question.tolist(), 400)
        assert set(found) <= exact.keys()
        hits += len(set(np.array(list(exact))[best].tolist()) & set(found))
    assert hits >= 0.99 * 20 * 100
    if not indexed:
        assert hits == 20 * 100


async def _vectors(storage: LocalStorage, principal: str) -> list[sqlite3.Row]:
    return await storage._db.read(
        lambda c: c.execute(
            "SELECT v.* FROM vectors v JOIN facts USING (number) WHERE principal = ?", (principal,)
        ).fetchall()
    )
