"""Showing a run, and saving it under `docs/benchmarks/`."""

import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil
from rich.console import Console
from rich.table import Table

from bench.expectations import Outcome
from bench.plot import bars
from bench.rounds import Row

FOLDER = Path(__file__).parents[1] / "docs" / "benchmarks"

_GIBIBYTE = 2**30


def _unless_zero(count: int) -> str:
    return f"{count:,}" if count else ""


_COLUMNS: dict[str, tuple[str, Callable[..., str]]] = {
    "measure": ("measure", str),
    "subject": ("subject", str),
    "clients": ("clients", str),
    "facts": ("facts", "{:,}".format),
    "window_rows": ("window rows", _unless_zero),
    "p50_ms": ("p50 ms", "{:,.2f}".format),
    "p95_ms": ("p95 ms", "{:,.2f}".format),
    "rps": ("per second", "{:,.0f}".format),
    "recall_at_10": ("recall@10", "{:.3f}".format),
    "value": ("MB", "{:.0f}".format),
    "facts_left": ("facts left", "{:,.0f}".format),
}
"""The keys of a row, and how a reader sees them."""
_HEADINGS = [heading for heading, _ in _COLUMNS.values()]


def machine() -> str:
    """Its shape; no names."""
    memory = psutil.virtual_memory().total / _GIBIBYTE
    return f"{os.cpu_count()} cores, {memory:.0f} GiB of memory"


def show(console: Console, rows: Sequence[Row], outcomes: Sequence[Outcome]) -> None:
    """Print the table, and each expectation with its figure."""
    table = Table()
    for heading in _HEADINGS:
        table.add_column(heading, no_wrap=True)
    for row in rows:
        style = {"floor": "dim", "ours": "bold"}.get(str(row["subject"]))
        table.add_row(*_cells(row), style=style)
    console.print(table)
    for outcome in outcomes:
        mark = "[green]met[/]   " if outcome.met else "[red]missed[/]"
        console.print(f"{mark} {outcome.sentence}")


def save(rows: Sequence[Row], outcomes: Sequence[Outcome], made_by: str) -> list[Path]:
    """Write the rows, the plot, and the section of the README that they are shown in.

    Args:
        rows: All of them.
        outcomes: What is said about the expectations.
        made_by: The command and its rounds, for the reader.
    """
    plot = bars(rows, f"Median latency and throughput ({machine()})")
    return write("service", rows, plot, _section(rows, outcomes, made_by))


def write(name: str, rows: Sequence[Mapping[str, Any]], plot: str, section: str) -> list[Path]:
    """Write `<name>.json`, `<name>.svg`, and what stands between the README's marks of the name.

    Raises:
        RuntimeError: the README has no such marks.
    """
    FOLDER.mkdir(parents=True, exist_ok=True)
    data, drawn, readme = (FOLDER / file for file in (f"{name}.json", f"{name}.svg", "README.md"))
    lines = ",\n".join(f"  {json.dumps(row)}" for row in rows)
    data.write_text(f"[\n{lines}\n]\n")
    drawn.write_text(plot)
    marked = re.compile(rf"(<!-- {name}:begin -->\n).*?(<!-- {name}:end -->)", re.DOTALL)
    text, replaced = marked.subn(lambda found: found[1] + section + found[2], readme.read_text())
    if not replaced:
        raise RuntimeError(f"{readme} has no section between the marks of `{name}`")
    readme.write_text(text)
    return [data, drawn, readme]


def _section(rows: Sequence[Row], outcomes: Sequence[Outcome], made_by: str) -> str:
    return "\n".join(
        [
            f"Made by {made_by} on a machine of {machine()}.",
            "",
            "| " + " | ".join(_HEADINGS) + " |",
            "|---|---|" + "--:|" * (len(_HEADINGS) - 2),
            *("| " + " | ".join(_cells(row)) + " |" for row in rows),
            "",
            *(f"- {'Met' if each.met else '**Missed**'}: {each.sentence}" for each in outcomes),
            "",
        ]
    )


def _cells(row: Row) -> list[str]:
    return ["" if row[key] is None else shown(row[key]) for key, (_, shown) in _COLUMNS.items()]
