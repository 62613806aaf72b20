"""Dead work as operators meet it: they see it, revive it, or give it up."""

import pytest

from kaos_memory.commands.outcome import ExitCode
from kaos_memory.storage.protocol import Storage, WorkKind, WorkState
from kaos_memory.tiers.memory import Owner

from ..storage.driving import ALICE, LEASE, turns
from .conftest import Run

OVERFLOW = [f"secret {number}" for number in range(1, 7)]


async def dead(storage: Storage, owner: Owner = ALICE, kind: WorkKind = WorkKind.EXTRACT) -> str:
    """Write a session of which one piece of work is dead. Returns its ref."""
    await storage.append(owner, turns(*OVERFLOW))
    lease = await storage.claim(LEASE, kind)
    assert lease is not None
    assert lease.principal == owner.principal
    await storage.fail(lease, "prose", None)
    return f"{lease.session_ref}:{lease.kind}"


async def states(storage: Storage) -> dict[str, WorkState]:
    return {item.ref: item.state for item in await storage.work_items(WorkState, 1_000)}


async def test_dead_work_is_listed_as_aligned_text(storage: Storage, run: Run):
    ref = await dead(storage)
    ended = await run("work", "list")
    assert (ended.code, ended.err) == (ExitCode.DONE, "")
    header, row, summary = ended.out.splitlines()
    assert header.split("  ")[0] == "ref"
    assert row.split()[:7] == [ref, "extract", "dead", "alice", ALICE.agent, "1", "prose"]
    cells = {"kind": "extract", "principal": "alice", "failures": "1", "last error": "prose"}
    for column, cell in cells.items():
        assert row[header.index(column) :].startswith(cell)
    assert summary == "1 due, 1 dead"
    assert "secret" not in ended.out


async def test_a_list_of_nothing_says_so(storage: Storage, run: Run):
    assert await states(storage) == {}
    ended = await run("work", "list")
    assert (ended.code, ended.out) == (ExitCode.DONE, "no work\n")
    assert (await run("work", "list", "--json")).json == {"items": [], "summary": []}


async def test_a_list_in_json_has_every_field_and_nothing_beside_it(storage: Storage, run: Run):
    ref = await dead(storage)
    ended = await run("work", "list", "--state", "dead", "--state", "due", "--json")
    items = {item["ref"]: item for item in ended.json["items"]}
    assert {item["state"] for item in items.values()} == {"dead", "due"}
    assert items[ref].pop("run_after").endswith("+00:00")
    assert items[ref] == {
        "ref": ref,
        "kind": "extract",
        "state": "dead",
        "principal": "alice",
        "agent": ALICE.agent,
        "attempts": 1,
        "failures": 1,
        "last_error": "prose",
    }
    assert {"kind": "extract", "state": "dead", "count": 1} in [
        {name: row[name] for name in ("kind", "state", "count")} for row in ended.json["summary"]
    ]


async def test_a_list_says_what_it_leaves_out(storage: Storage, run: Run):
    for name in ("a", "b", "c"):
        await dead(storage, Owner(name, ALICE.agent, "s"))
    ended = await run("work", "list", "--limit", "1")
    assert len(ended.out.splitlines()) == 3
    assert ended.out.endswith("3 dead; 2 more than shown, see --limit\n")


async def test_a_summary_counts_by_kind_and_state(storage: Storage, run: Run):
    await dead(storage)
    header, *rows = (await run("work", "list", "--summary")).out.splitlines()
    assert header.split() == ["kind", "state", "count", "oldest"]
    assert [row.split()[:3] for row in rows] == [["extract", "dead", "1"], ["fold", "due", "1"]]
    in_json = (await run("work", "list", "--summary", "--json")).json
    assert list(in_json) == ["summary"]


async def test_a_name_cannot_speak_to_the_terminal(storage: Storage, run: Run):
    await dead(storage, Owner("[red]\N{ESCAPE}[2J\N{RIGHT-TO-LEFT OVERRIDE}", ALICE.agent, "s"))
    ended = await run("work", "list")
    assert "[red]\N{REPLACEMENT CHARACTER}[2J\N{REPLACEMENT CHARACTER}" in ended.out


async def test_retried_work_is_due_again(storage: Storage, run: Run):
    ref = await dead(storage)
    ended = await run("work", "retry", ref, ref)
    assert (ended.code, ended.out) == (
        ExitCode.DONE,
        "retried 1 piece of dead work (1 extract)\n",
    )
    assert (await states(storage))[ref] is WorkState.DUE


async def test_what_is_not_dead_is_named_and_the_rest_is_done(storage: Storage, run: Run):
    ref = await dead(storage)
    other = ref.replace("extract", "fold")
    ended = await run("work", "retry", other, ref, "--json")
    assert ended.code == ExitCode.FAILED
    assert ended.json == {"retried": [ref], "not_dead": [other]}
    assert ended.err == f"error: {other} is not dead work; `work list` shows what is\n"


async def test_all_dead_work_of_a_kind_is_retried(storage: Storage, run: Run):
    folds = {await dead(storage, Owner(name, ALICE.agent, "s"), WorkKind.FOLD) for name in "ab"}
    extract = await dead(storage, Owner("c", ALICE.agent, "s"))
    ended = await run("work", "retry", "--all-dead", "--kind", "fold", "--json")
    assert set(ended.json["retried"]) == folds
    assert ended.json["not_dead"] == []
    after = await states(storage)
    assert {after[ref] for ref in folds} == {WorkState.DUE}
    assert after[extract] is WorkState.DEAD


async def test_nothing_dead_is_nothing_to_do(storage: Storage, run: Run):
    await storage.append(ALICE, turns(*OVERFLOW))
    ended = await run("work", "drop", "--all-dead", "--yes")
    assert (ended.code, ended.out) == (ExitCode.DONE, "dropped 0 pieces of dead work\n")


async def test_dropped_work_passes_over_its_turns(storage: Storage, run: Run):
    refs = [await dead(storage, Owner(name, ALICE.agent, "s")) for name in "ab"]
    ended = await run("work", "drop", *refs, "--yes", "--json")
    assert (ended.code, ended.json) == (ExitCode.DONE, {"dropped": refs, "not_dead": []})
    after = await states(storage)
    assert {after[ref] for ref in refs} == {WorkState.WAITING}  # for turns still in the window
    assert (await run("work", "drop", refs[0], "--yes")).code == ExitCode.FAILED


async def test_nothing_is_dropped_without_a_yes(storage: Storage, run: Run):
    ref = await dead(storage)
    ended = await run("work", "drop", ref, given="y\n")
    assert (ended.code, ended.out) == (ExitCode.REFUSED, "")
    assert "give --yes" in ended.err
    assert (await states(storage))[ref] is WorkState.DEAD


async def test_progress_of_much_work_stays_out_of_the_json(storage: Storage, run: Run):
    for number in range(60):
        await dead(storage, Owner(f"user-{number}", ALICE.agent, "s"))
    ended = await run("work", "retry", "--all-dead", "--json")
    assert len(ended.json["retried"]) == 60
    assert "Retrying" in ended.err


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["retry"], "name refs, or give --all-dead"),
        (["retry", "1:fold", "--all-dead"], "name refs, or give --all-dead"),
        (["retry", "1:fold", "--kind", "fold"], "goes with --all-dead only"),
        (["retry", "1"], "no ref such as"),
        (["retry", "1:burn"], "no ref such as"),
        (["retry", "0:fold"], "no ref such as"),
        (["retry", "9223372036854775808:fold"], "no ref such as"),
        (["retry", f"{'9' * 5_000}:fold"], "no ref such as"),
        (["drop", "\N{SUPERSCRIPT TWO}:fold"], "no ref such as"),
        (["list", "--state", "asleep"], "asleep"),
        (["list", "--limit", "0"], "--limit"),
    ],
)
async def test_wrong_usage_is_refused_with_a_hint(run: Run, arguments: list[str], hint: str):
    ended = await run("work", *arguments)
    assert (ended.code, ended.out) == (ExitCode.REFUSED, "")
    assert hint in ended.err
