"""`kaos-memory erasures`: keep the receipts of erasures, and replay them after a restore."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated

import typer

from kaos_memory.commands.on_storage import on_storage
from kaos_memory.commands.outcome import ExitCode, complain, end
from kaos_memory.commands.output import Json, print_json, print_table, with_progress
from kaos_memory.commands.receipts_file import UnusableFile, read_receipts
from kaos_memory.contract import Erasure, ErasureLevel
from kaos_memory.storage.protocol import Storage, UnusableReceipt

app = typer.Typer(
    name="erasures",
    help="Receipts of erasures: export them, replay them after a restore.",
    no_args_is_help=True,
)

_COUNTS = ("sessions", "turns", "digests", "facts", "residue")
_MOST_TOLD = 20


@dataclass(frozen=True)
class Unusable:
    """A receipt that could not be replayed, and why."""

    line: int
    reason: str


def parse_time(text: str) -> datetime:
    """Read a date or time in ISO 8601, UTC where it does not say otherwise.

    Raises:
        typer.BadParameter: it is none.
    """
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter("no time in ISO 8601 such as 2024-05-01T12:00:00Z") from None
    return time if time.tzinfo else time.replace(tzinfo=UTC)


@app.command()
def export(
    *,
    since: Annotated[
        datetime | None,
        typer.Option(
            parser=parse_time,
            metavar="TIME",
            help="Only erasures after this time, in ISO 8601; in UTC unless it says otherwise.",
        ),
    ] = None,
) -> None:
    """Print all receipts, the oldest first, each as a line of JSON.

    Receipts name nobody: they hold counts, and hashes made with the store's own key.
    """

    async def print_all(storage: Storage) -> None:
        async for receipt in storage.receipts(since):
            typer.echo(receipt.model_dump_json(exclude_none=True))

    on_storage(print_all)


@app.command()
def replay(
    file: Annotated[
        typer.FileBinaryRead,
        typer.Argument(metavar="FILE", help="An export of receipts; - reads standard input."),
    ],
    *,
    as_json: Json = False,
) -> None:
    """Erase again what receipts say was erased, in a database that was restored from a backup.

    What was stored after an erasure stays. Doing it twice changes nothing.
    """
    try:
        lines = read_receipts(file)
    except UnusableFile as error:
        end(ExitCode.REFUSED, *error.problems, "nothing was replayed")

    async def replay_all(storage: Storage) -> tuple[list[Erasure], list[Unusable]]:
        done: list[Erasure] = []
        unusable: list[Unusable] = []
        for line in with_progress(lines, "Replaying"):
            try:
                done.append(await storage.replay(line.receipt))
            except UnusableReceipt as error:
                unusable.append(Unusable(line.number, str(error)))
        return done, unusable

    done, unusable = on_storage(replay_all)
    _report(done, unusable, as_json=as_json)


def _report(done: Sequence[Erasure], unusable: Sequence[Unusable], *, as_json: bool) -> None:
    """Say what went; the command has failed where a receipt was of no use or something is left."""
    levels = {receipt.level for receipt in done}
    counted = {
        level.value: _totals([receipt for receipt in done if receipt.level == level])
        for level in ErasureLevel
        if level in levels
    }
    totals = _totals(done)
    if as_json:
        print_json({"levels": counted, "total": totals, "unusable": unusable})
    else:
        rows = [*counted.items(), ("total", totals)]
        print_table(("level", *totals), ([name, *map(str, row.values())] for name, row in rows))
    for refused in unusable[:_MOST_TOLD]:
        complain(f"the receipt on line {refused.line} was not replayed: {refused.reason}")
    if len(unusable) > _MOST_TOLD:
        complain(f"{len(unusable) - _MOST_TOLD} more receipts were not replayed; --json has all")
    if totals["residue"]:
        complain("some rows are still there; replay again, and if they stay, report a defect")
    if unusable or totals["residue"]:
        raise typer.Exit(ExitCode.FAILED)


def _totals(receipts: Sequence[Erasure]) -> dict[str, int]:
    """How many receipts, how many rows went with them, and how many are left."""
    rows = {count: sum(getattr(receipt, count) for receipt in receipts) for count in _COUNTS}
    return {"receipts": len(receipts), **rows}
