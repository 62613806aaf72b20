"""Figures as one SVG: a bar for each subject, in groups of what is compared."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

from bench.rounds import Row

_COLOURS = {"ours": "#2563eb", "floor": "#9ca3af"}
_OTHERS = ("#f59e0b", "#10b981")
_WIDTH, _LEFT, _BAR, _GAP = 820, 260, 16, 14
_LONGEST = _WIDTH - _LEFT - 190


@dataclass(frozen=True)
class Bar:
    """One subject's figure, and how it is written."""

    subject: str
    figure: float
    text: str


def bars(rows: Sequence[Row], title: str) -> str:
    """Median latency of each row, or its megabytes; each group to its own scale."""
    groups: dict[str, list[Bar]] = {}
    for row in rows:
        if row["subject"] != "floor":
            bar = Bar(str(row["subject"]), _size(row), _figures(row))
            groups.setdefault(_label(row), []).append(bar)
    return drawing(groups, title)


def drawing(groups: Mapping[str, Sequence[Bar]], title: str, *, full: float | None = None) -> str:
    """The groups below each other.

    Args:
        groups: Bars by the label of their group.
        title: What stands above.
        full: The figure of the longest possible bar; omitted, the largest of each group.
    """
    subjects = list(dict.fromkeys(bar.subject for members in groups.values() for bar in members))
    others = [subject for subject in subjects if subject not in _COLOURS]
    colours = _COLOURS | {subject: _OTHERS[at % 2] for at, subject in enumerate(others)}
    parts: list[str] = []
    top = 56
    for label, members in groups.items():
        longest = full or max(bar.figure for bar in members)
        parts.append(_text(_LEFT - 10, top + _BAR, label, anchor="end"))
        for bar in members:
            length = max(1.0, _LONGEST * bar.figure / longest)
            parts.append(
                f'<rect x="{_LEFT}" y="{top}" width="{length:.0f}" height="{_BAR - 2}" '
                f'fill="{colours[bar.subject]}"/>'
            )
            parts.append(_text(_LEFT + length + 6, top + _BAR - 4, bar.text))
            top += _BAR
        top += _GAP
    legend = [
        f'<rect x="{_LEFT + 150 * at}" y="32" width="10" height="10" '
        f'fill="{colours[subject]}"/>' + _text(_LEFT + 150 * at + 16, 41, subject)
        for at, subject in enumerate(subjects)
    ]
    canvas = f'viewBox="0 0 {_WIDTH} {top}" font-family="sans-serif" font-size="11"'
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" {canvas} fill="#111827">',
            f'<rect width="{_WIDTH}" height="{top}" fill="#ffffff"/>',
            _text(12, 20, title, size=14),
            *legend,
            *parts,
            "</svg>\n",
        ]
    )


def _text(x: float, y: float, text: str, *, anchor: str = "start", size: int = 11) -> str:
    return (
        f'<text x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}" font-size="{size}">'
        f"{escape(text)}</text>"
    )


def _label(row: Row) -> str:
    clients, facts, crowd = row["clients"], row["facts"], row["window_rows"]
    return ", ".join(
        [
            str(row["measure"]),
            *([f"{clients} client{'s' if clients != 1 else ''}"] if clients else []),
            *([f"{facts:,} facts"] if facts else []),
            *([f"{crowd:,} window rows"] if crowd else []),
        ]
    )


def _size(row: Row) -> float:
    size = row["p50_ms"] if row["value"] is None else row["value"]
    assert isinstance(size, int | float)
    return size


def _figures(row: Row) -> str:
    if row["value"] is not None:
        return f"{row['value']:.0f} MB"
    figures = [f"{row['p50_ms']:,.2f} ms"]
    if row["rps"] is not None:
        figures.append(f"{row['rps']:,.0f}/s")
    if row["recall_at_10"] is not None:
        figures.append(f"recall@10 {row['recall_at_10']:.2f}")
    if row["facts_left"]:
        figures.append(f"{row['facts_left']:,} facts left")
    return " · ".join(figures)
