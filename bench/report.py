"""Showing a run, and saving it under `docs/benchmarks/`."""

import json
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil
from rich.console import Console
from rich.table import Table

from bench.expectations import Outcome
from bench.plot import bars

FOLDER = Path(__file__).parents[1] / "docs" / "benchmarks"

_HEADINGS = (
    "measure",
    "subject",
    "clients",
    "facts",
    "p50 ms",
    "p95 ms",
    "per second",
    "recall@10",
)
_GIBIBYTE = 2**30


def machine() -> str:
    """Its shape; no names."""
    memory = psutil.virtual_memory().total / _GIBIBYTE
    return f"{os.cpu_count()} cores, {memory:.0f} GiB of memory"


def show(console: Console, rows: Sequence[Mapping[str, Any]], outcomes: Sequence[Outcome]) -> None:
    """Print the table, and each expectation with its figure."""
    table = Table(*_HEADINGS)
    for row in rows:
        style = {"floor": "dim", "ours": "bold"}.get(row["subject"])
        table.add_row(*_cells(row), style=style)
    console.print(table)
    for outcome in outcomes:
        mark = "[green]met[/]   " if outcome.met else "[red]missed[/]"
        console.print(f"{mark} {_sentence(outcome)}")


def save(
    rows: Sequence[Mapping[str, Any]], outcomes: Sequence[Outcome], command: str, rounds: int
) -> list[Path]:
    """Write the rows, the plot, and the section of the README that they are shown in."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    plot = bars(rows, f"Median latency and throughput ({machine()})")
    return write("service", rows, plot, _section(rows, outcomes, command, rounds))


def write(name: str, rows: Sequence[Mapping[str, Any]], plot: str, section: str) -> list[Path]:
    """Write `<name>.json`, `<name>.svg`, and what stands between the README's marks of the name.

    Raises:
        RuntimeError: the README has no such marks.
    """
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


def _section(
    rows: Sequence[Mapping[str, Any]], outcomes: Sequence[Outcome], command: str, rounds: int
) -> str:
    return "\n".join(
        [
            f"Made by `{command}` on a machine of {machine()}; medians of {rounds} rounds.",
            "",
            "| " + " | ".join(_HEADINGS) + " |",
            "|---|---|" + "--:|" * (len(_HEADINGS) - 2),
            *("| " + " | ".join(_cells(row)) + " |" for row in rows),
            "",
            *(f"- {'Met' if o.met else '**Missed**'}: {_sentence(o)}" for o in outcomes),
            "",
        ]
    )


def _cells(row: Mapping[str, Any]) -> list[str]:
    facts, recall = row["facts"], row["recall_at_10"]
    return [
        row["measure"],
        row["subject"],
        str(row["clients"]),
        "" if facts is None else f"{facts:,}",
        f"{row['p50_ms']:.2f}",
        f"{row['p95_ms']:.2f}",
        f"{row['rps']:,.0f}",
        "" if recall is None else f"{recall:.3f}",
    ]


def _sentence(outcome: Outcome) -> str:
    wanted = outcome.expectation
    return (
        f"{wanted.clients} client{'s' if wanted.clients > 1 else ''}: {wanted.text} "
        f"(x{outcome.figure:.2f}, at least x{wanted.least:.2f}; "
        f"rounds x{min(outcome.ratios):.2f} to x{max(outcome.ratios):.2f})"
    )
