"""The figures as one SVG: a bar for each subject, the shorter the faster."""

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

_COLOURS = {"ours": "#2563eb", "floor": "#9ca3af"}
_OTHER = "#f59e0b"
_WIDTH, _LEFT, _BAR, _GAP = 760, 250, 16, 14
_LONGEST = _WIDTH - _LEFT - 130


def bars(rows: Sequence[Mapping[str, Any]], title: str) -> str:
    """Median latency of each row, grouped by measure and clients; each group to its own scale."""
    groups: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for row in rows:
        if row["subject"] != "floor":
            groups.setdefault((row["measure"], row["facts"], row["clients"]), []).append(row)
    parts: list[str] = []
    top = 56
    for (measure, facts, clients), members in groups.items():
        longest = max(row["p50_ms"] for row in members)
        label = f"{measure}, {clients} client{'s' if clients > 1 else ''}"
        label += f", {facts:,} facts" if facts else ""
        parts.append(_text(_LEFT - 10, top + _BAR, label, anchor="end"))
        for row in members:
            length = max(1.0, _LONGEST * row["p50_ms"] / longest)
            colour = _COLOURS.get(row["subject"], _OTHER)
            parts.append(
                f'<rect x="{_LEFT}" y="{top}" width="{length:.0f}" height="{_BAR - 2}" '
                f'fill="{colour}"/>'
            )
            figures = f"{row['p50_ms']:.2f} ms · {row['rps']:.0f}/s"
            parts.append(_text(_LEFT + length + 6, top + _BAR - 4, figures))
            top += _BAR
        top += _GAP
    subjects = dict.fromkeys(row["subject"] for row in rows if row["subject"] != "floor")
    legend = [
        f'<rect x="{_LEFT + 150 * at}" y="32" width="10" height="10" '
        f'fill="{_COLOURS.get(subject, _OTHER)}"/>' + _text(_LEFT + 150 * at + 16, 41, subject)
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
