"""Receipts outlive a restore: exported before, replayed after, whatever the file holds."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from kaos_dev.embedded_postgres import EmbeddedPostgres
from kaos_memory.commands.outcome import ExitCode
from kaos_memory.commands.receipts_file import MAX_LINE_BYTES
from kaos_memory.contract import ScopeLevel
from kaos_memory.storage.protocol import Storage
from kaos_memory.tiers.memory import Owner
from kaos_memory.tiers.reach import Owners, Reach

from ..conftest import OWNER, StorageFactory
from ..storage.driving import ALICE, BOB, turns, work_off
from .conftest import Run

SAID = [f"secret {number}" for number in range(1, 7)]


async def fill(storage: Storage) -> None:
    for owner in (ALICE, BOB):
        await storage.append(owner, turns(*SAID))
    await work_off(storage)


async def erase(storage: Storage, owner: Owner = ALICE) -> dict[str, Any]:
    reach = Reach(ScopeLevel.USER, Owners(owner.principal), None)
    return json.loads((await storage.erase(reach, dry_run=False)).model_dump_json())


@pytest.fixture
async def backup(make_storage: StorageFactory, postgres: EmbeddedPostgres, dsn: str) -> str:
    """The test's store, filled, and a copy of it as it was then. Its DSN."""
    opened = make_storage()
    await opened.open()
    await fill(opened)
    await opened.close()
    name = dsn.rpartition("/")[2].partition("?")[0]
    postgres.create_database(f"{name}_backup", template=name, owner=OWNER)
    return postgres.dsn(f"{name}_backup", OWNER)


async def facts(make_storage: StorageFactory, dsn: str) -> set[str]:
    """Whose facts a store has."""
    opened = make_storage(to=dsn)
    await opened.open()
    found = await opened.newest_facts(Owners(), 100)
    await opened.close()
    return {fact.text.split()[0] for fact in found}


async def test_what_was_erased_goes_again_after_a_restore(
    make_storage: StorageFactory, backup: str, storage: Storage, run: Run
):
    receipt = await erase(storage)
    exported = await run("erasures", "export")
    assert await facts(make_storage, backup) == {"alice", "bob"}
    ended = await run(
        "erasures", "replay", "-", "--json", given=exported.out, KAOS_MEMORY_EXTERNAL_DSN=backup
    )
    assert (ended.code, ended.err) == (ExitCode.DONE, "")
    counts = {name: receipt[name] for name in ("sessions", "turns", "digests", "facts")}
    assert counts["facts"] == 4
    totals = {"receipts": 1, **counts, "residue": 0}
    assert ended.json == {"levels": {"user": totals}, "total": totals, "unusable": []}
    assert await facts(make_storage, backup) == {"bob"}


async def test_a_replay_where_nothing_came_back_counts_nothing(
    storage: Storage, run: Run, tmp_path: Path
):
    await fill(storage)
    await erase(storage)
    file = tmp_path / "receipts.jsonl"
    file.write_text((await run("erasures", "export")).out + "\n")
    ended = await run("erasures", "replay", str(file))
    assert ended.code == ExitCode.DONE
    header, *rows = [line.split() for line in ended.out.splitlines()]
    assert header == ["level", "receipts", "sessions", "turns", "digests", "facts", "residue"]
    assert rows == [["user", "1", "0", "0", "0", "0", "0"], ["total", "1", "0", "0", "0", "0", "0"]]


async def test_an_export_is_a_receipt_on_each_line_and_names_nobody(storage: Storage, run: Run):
    await fill(storage)
    erased = [await erase(storage, owner) for owner in (ALICE, BOB)]
    ended = await run("erasures", "export")
    assert (ended.code, ended.err) == (ExitCode.DONE, "")
    lines = [json.loads(line) for line in ended.out.splitlines()]
    assert [line["id"] for line in lines] == [receipt["id"] for receipt in erased]
    assert "alice" not in ended.out
    assert "secret" not in ended.out


async def test_an_export_begins_after_a_time(storage: Storage, run: Run):
    first, second = [await erase(storage, owner) for owner in (ALICE, BOB)]
    ended = await run("erasures", "export", "--since", first["erased_at"])
    assert [json.loads(line)["id"] for line in ended.out.splitlines()] == [second["id"]]
    tomorrow = (datetime.now(UTC) + timedelta(days=1)).date().isoformat()
    assert (await run("erasures", "export", "--since", tomorrow)).out == ""
    ended = await run("erasures", "export", "--since", "yesterday")
    assert (ended.code, ended.out) == (ExitCode.REFUSED, "")
    assert "2024-05-01T12:00:00Z" in ended.err


async def test_a_receipt_of_another_store_is_named_and_the_others_are_replayed(
    make_storage: StorageFactory, backup: str, storage: Storage, run: Run
):
    receipt = await erase(storage)
    foreign = receipt | {"id": str(uuid4()), "key_id": "0" * 16}
    given = "\n".join(map(json.dumps, (foreign, receipt)))
    ended = await run("erasures", "replay", "-", given=given, KAOS_MEMORY_EXTERNAL_DSN=backup)
    assert ended.code == ExitCode.FAILED
    assert ended.err.startswith("error: the receipt on line 1 was not replayed: ")
    assert ended.out.splitlines()[-1].split()[:2] == ["total", "1"]
    assert await facts(make_storage, backup) == {"bob"}


def _bad_lines(good: str) -> Iterator[tuple[str, str]]:
    receipt = json.loads(good)
    yield "not json", "line 2 is no receipt: Invalid JSON"
    yield "[]", "line 2 is no receipt: "
    yield json.dumps(receipt | {"facts": -1}), "line 2 is no receipt: facts: "
    yield json.dumps(receipt | {"principal_hash": "alice"}), "is no receipt: principal_hash: "
    yield json.dumps(receipt | {"note": "alice"}), "line 2 is no receipt: note: "
    yield json.dumps(receipt | {"id": None}), "line 2 is no receipt: it is the plan of an erasure"
    yield good.rstrip() + " " * MAX_LINE_BYTES, "line 2 is longer than 4096 bytes"
    yield "alice\n" * 100_000, "reading stopped here"


async def test_a_file_with_a_malformed_line_is_refused_before_anything_is_done(
    make_storage: StorageFactory, backup: str, storage: Storage, run: Run
):
    await erase(storage)
    good = (await run("erasures", "export")).out
    for bad, complaint in _bad_lines(good):
        ended = await run(
            "erasures", "replay", "-", given=good + bad, KAOS_MEMORY_EXTERNAL_DSN=backup
        )
        assert (ended.code, ended.out) == (ExitCode.REFUSED, "")
        assert complaint in ended.err
        assert ended.err.endswith("error: nothing was replayed\n")
        assert "alice" not in ended.err
    assert await facts(make_storage, backup) == {"alice", "bob"}


async def test_a_file_that_is_not_there_is_wrong_usage(run: Run, tmp_path: Path):
    ended = await run("erasures", "replay", str(tmp_path / "nowhere"))
    assert (ended.code, ended.out) == (ExitCode.REFUSED, "")
