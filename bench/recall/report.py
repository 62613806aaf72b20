"""Showing a run, and saving it under `docs/benchmarks/`."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench import report
from bench.plot import Bar, drawing
from bench.recall.floors import OURS, Outcome
from bench.recall.measures import Row

_NAME = "recall"
_HEADINGS = (
    "category",
    "subject",
    "questions",
    "recall@10",
    "recall@20",
    "hit@20",
    "MRR",
    "p50 ms",
    "p95 ms",
)


def show(console: Console, rows: Sequence[Row], outcomes: Sequence[Outcome]) -> None:
    """Print the table, and each floor with its figure."""
    table = Table(*_HEADINGS)
    for row in _by_category(rows):
        table.add_row(*_cells(row), style="bold" if row.subject == OURS else None)
    console.print(table)
    for outcome in outcomes:
        mark = "[green]met[/]   " if outcome.met else "[red]missed[/]"
        console.print(f"{mark} {outcome.sentence}")


def save(rows: Sequence[Row], outcomes: Sequence[Outcome], command: str) -> list[Path]:
    """Write the rows, the plot, and the section of the README that they are shown in."""
    plot = _plot(rows)
    section = _section(rows, outcomes, command)
    return report.write(_NAME, [asdict(row) for row in rows], plot, section)


def _plot(rows: Sequence[Row]) -> str:
    groups: dict[str, list[Bar]] = {}
    for row in _by_category(rows):
        text = f"{row.recall_at_20:.3f}"
        groups.setdefault(row.category, []).append(Bar(row.subject, row.recall_at_20, text))
    return drawing(groups, "recall@20 on LoCoMo: longer is better", full=1.0)


def _section(rows: Sequence[Row], outcomes: Sequence[Outcome], command: str) -> str:
    return "\n".join(
        [
            f"Made by `{command}` on a machine of {report.machine()}.",
            "",
            "| " + " | ".join(_HEADINGS) + " |",
            "|---|---|" + "--:|" * (len(_HEADINGS) - 2),
            *("| " + " | ".join(_cells(row)) + " |" for row in _by_category(rows)),
            "",
            *(f"- {'Met' if o.met else '**Missed**'}: {o.sentence}" for o in outcomes),
            "",
            f"![recall@20]({_NAME}.svg)",
            "",
        ]
    )


def _by_category(rows: Sequence[Row]) -> list[Row]:
    """Those that are compared, beside each other."""
    order = list(dict.fromkeys(row.category for row in rows))
    return sorted(rows, key=lambda row: order.index(row.category))


def _cells(row: Row) -> list[str]:
    return [
        row.category,
        row.subject,
        f"{row.questions:,}",
        f"{row.recall_at_10:.3f}",
        f"{row.recall_at_20:.3f}",
        f"{row.hit_at_20:.3f}",
        f"{row.mrr:.3f}",
        f"{row.p50_ms:.1f}",
        f"{row.p95_ms:.1f}",
    ]
