"""What commands print: tables for people, JSON for programs."""

import sys
from collections.abc import Iterable, Sequence
from typing import Annotated, Any, TypeVar

import orjson
import typer
from rich.box import SIMPLE_HEAD
from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.progress import track
from rich.table import Table
from rich.text import Text

_T = TypeVar("_T")
_MANY = 50
"""Of so many things, somebody who waits wants to see how far they are."""

Json = Annotated[bool, typer.Option("--json", help="Print JSON, and nothing else, on stdout.")]
"""The option that each command has."""


def print_json(document: Any) -> None:
    """Print one document."""
    typer.echo(orjson.dumps(document, option=orjson.OPT_INDENT_2))


def print_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print rows under their columns' names: drawn on a terminal, aligned text elsewhere."""
    shown = [[_one_line(cell) for cell in row] for row in rows]
    console = Console()
    if console.is_terminal:
        table = Table(*columns, box=SIMPLE_HEAD)
        for row in shown:
            table.add_row(*(Text(cell) for cell in row))  # `Text`: brackets are no markup
        console.print(table)
        return
    widths = [max(map(cell_len, column)) for column in zip(columns, *shown, strict=True)]
    for row in (columns, *shown):
        typer.echo("  ".join(map(set_cell_size, row, widths)).rstrip())


def with_progress(things: Sequence[_T], doing: str) -> Iterable[_T]:
    """Pass things on; where they are many, show on standard error how far it is."""
    console = Console(file=sys.stderr)
    return track(things, doing, console=console, disable=len(things) < _MANY)


def _one_line(text: str) -> str:
    """A text that can neither break its line nor speak to the terminal."""
    return "".join(
        letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in text
    )
