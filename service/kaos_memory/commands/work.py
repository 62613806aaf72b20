"""`kaos-memory work`: what waits to be folded and extracted, and what died of it."""

import re
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, timedelta
from typing import Annotated, Any

import typer

from kaos_memory.commands.on_storage import on_storage
from kaos_memory.commands.outcome import ExitCode, complain, end
from kaos_memory.commands.output import Json, print_json, print_table, with_progress
from kaos_memory.storage.protocol import Storage, WorkCount, WorkItem, WorkKind, WorkState

app = typer.Typer(
    name="work", help="Background work: list it, retry or drop what is dead.", no_args_is_help=True
)

_LARGEST_REF = 2**63 - 1
_REF = re.compile(rf"([1-9][0-9]{{0,18}}):({'|'.join(WorkKind)})")


@dataclass(frozen=True, order=True)
class Ref:
    """A piece of work as it is named on the command line."""

    session_ref: int
    kind: WorkKind

    def __str__(self) -> str:
        return f"{self.session_ref}:{self.kind}"


def parse_ref(text: str) -> Ref:
    """Read `<number>:<kind>`.

    Raises:
        typer.BadParameter: it is none.
    """
    read = _REF.fullmatch(text)
    if read is None or int(read[1]) > _LARGEST_REF:
        raise typer.BadParameter("no ref such as 17:extract or 17:fold; `work list` shows them")
    return Ref(int(read[1]), WorkKind(read[2]))


Refs = Annotated[
    list[Ref] | None,
    typer.Argument(parser=parse_ref, metavar="REF", help="As `work list` shows them."),
]
AllDead = Annotated[bool, typer.Option("--all-dead", help="All that is dead now.")]
Kind = Annotated[
    WorkKind | None, typer.Option("--kind", help="With --all-dead: only work of this kind.")
]


@app.command("list")
def list_(
    *,
    state: Annotated[
        list[WorkState] | None,
        typer.Option(help="Work in this state; may be given several times. [default: dead]"),
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="At most so many pieces.")] = 50,
    summary: Annotated[
        bool, typer.Option("--summary", help="Only how much there is, by kind and state.")
    ] = False,
    as_json: Json = False,
) -> None:
    """List work, the longest due or dead first, and how much there is of each state.

    No content of any conversation is shown.
    """
    states = state or [WorkState.DEAD]

    async def look(storage: Storage) -> tuple[list[WorkItem], list[WorkCount]]:
        items = [] if summary else await storage.work_items(states, limit)
        return items, await storage.work_summary()

    items, counts = on_storage(look)
    if as_json:
        listed = {} if summary else {"items": [_as_document(item) for item in items]}
        print_json({**listed, "summary": counts})
    elif summary:
        print_table(
            ("kind", "state", "count", "oldest"),
            ((c.kind, c.state, str(c.count), _duration(c.oldest_seconds)) for c in counts),
        )
    else:
        if items:
            print_table(_COLUMNS, map(_as_row, items))
        typer.echo(_summary_line(counts, len(items), states))


@app.command()
def retry(
    refs: Refs = None,
    *,
    all_dead: AllDead = False,
    kind: Kind = None,
    as_json: Json = False,
) -> None:
    """Make dead work due again, with all its retries. Running services take it up by themselves."""
    _require_one_choice(refs, kind, all_dead=all_dead)

    async def change(storage: Storage) -> tuple[list[Ref], list[Ref]]:
        chosen = _unique(refs) if refs else await _all_dead(storage, kind)
        done = [
            ref
            for ref in with_progress(chosen, "Retrying")
            if await storage.retry_work(ref.session_ref, ref.kind)
        ]
        return chosen, done

    chosen, done = on_storage(change)
    _report("retried", done, [] if all_dead else chosen, as_json=as_json)


@app.command()
def drop(
    refs: Refs = None,
    *,
    all_dead: AllDead = False,
    kind: Kind = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: Json = False,
) -> None:
    """Give up dead work for good: its turns are passed over.

    Work to fold: its turns will be in no digest. Work to extract: no facts will be made of them.
    Turns that nothing else waits for are deleted.
    """
    _require_one_choice(refs, kind, all_dead=all_dead)
    if not yes and not sys.stdin.isatty():
        end(ExitCode.REFUSED, "this cannot be undone, and there is no terminal to ask; give --yes")

    async def change(storage: Storage) -> tuple[list[Ref], list[Ref]]:
        chosen = _unique(refs) if refs else await _all_dead(storage, kind)
        if chosen and not yes:
            typer.confirm(f"Give up {_counted(chosen)} for good?", abort=True, err=True)
        done = [
            ref
            for ref in with_progress(chosen, "Dropping")
            if await storage.drop_work(ref.session_ref, ref.kind)
        ]
        return chosen, done

    chosen, done = on_storage(change)
    _report("dropped", done, [] if all_dead else chosen, as_json=as_json)


def _require_one_choice(
    refs: Sequence[Ref] | None, kind: WorkKind | None, *, all_dead: bool
) -> None:
    if bool(refs) == all_dead:
        raise typer.BadParameter("name refs, or give --all-dead", param_hint="REF")
    if kind is not None and not all_dead:
        raise typer.BadParameter("goes with --all-dead only", param_hint="--kind")


async def _all_dead(storage: Storage, kind: WorkKind | None) -> list[Ref]:
    """What is dead now; what dies again meanwhile is left alone."""
    counts = await storage.work_summary()
    most = sum(count.count for count in counts if count.state is WorkState.DEAD)
    items = await storage.work_items([WorkState.DEAD], most) if most else []
    return [Ref(item.session_ref, item.kind) for item in items if kind in {None, item.kind}]


def _unique(refs: Sequence[Ref]) -> list[Ref]:
    return list(dict.fromkeys(refs))


def _report(verb: str, done: Sequence[Ref], asked: Sequence[Ref], *, as_json: bool) -> None:
    """Say what was done, and of what was asked for by name, what was not."""
    not_dead = [ref for ref in asked if ref not in set(done)]
    if as_json:
        print_json({verb: [str(ref) for ref in done], "not_dead": [str(ref) for ref in not_dead]})
    else:
        typer.echo(f"{verb} {_counted(done)}")
    if not_dead:
        complain(*(f"{ref} is not dead work; `work list` shows what is" for ref in not_dead))
        raise typer.Exit(ExitCode.FAILED)


def _counted(refs: Sequence[Ref]) -> str:
    kinds = Counter(ref.kind for ref in refs)
    pieces = "1 piece" if len(refs) == 1 else f"{len(refs)} pieces"
    parts = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))
    return f"{pieces} of dead work" + (f" ({parts})" if parts else "")


_COLUMNS = (
    "ref",
    "kind",
    "state",
    "principal",
    "agent",
    "failures",
    "last error",
    "due or dead since",
)


def _as_row(item: WorkItem) -> tuple[str, ...]:
    return (
        item.ref,
        item.kind,
        item.state,
        item.principal or "-",
        item.agent or "-",
        str(item.failures),
        item.last_error or "-",
        item.run_after.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%SZ"),
    )


def _as_document(item: WorkItem) -> dict[str, Any]:
    return {
        "ref": item.ref,
        "kind": item.kind,
        "state": item.state,
        "principal": item.principal,
        "agent": item.agent,
        "attempts": item.attempts,
        "failures": item.failures,
        "last_error": item.last_error,
        "run_after": item.run_after.astimezone(UTC),
    }


def _summary_line(counts: Sequence[WorkCount], shown: int, states: Sequence[WorkState]) -> str:
    """How much there is of each state, and whether more was asked for than is shown."""
    totals: Counter[WorkState] = Counter()
    for count in counts:
        totals[count.state] += count.count
    line = ", ".join(f"{totals[state]} {state}" for state in WorkState if totals[state])
    hidden = sum(totals[state] for state in set(states)) - shown
    more = f"; {hidden} more than shown, see --limit" if hidden > 0 else ""
    return (line or "no work") + more


def _duration(seconds: float) -> str:
    return str(timedelta(seconds=round(seconds))) if seconds else "-"
