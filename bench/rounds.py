"""Playing cells in rounds, and what is made of it: medians over rounds."""

import math
import statistics
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, fields
from itertools import chain
from typing import TypeVar

from bench.load import Timing
from bench.plan import Effort

_T = TypeVar("_T")

Row = dict[str, str | int | float | None]


@dataclass(frozen=True)
class Key:
    """What a row is about."""

    measure: str
    subject: str
    clients: int | None = None
    facts: int | None = None
    """In the store; of the user, where one is forgotten."""
    window_rows: int = 0


@dataclass(frozen=True)
class Figures:
    """One round of a measure; what it does not have is None."""

    p50_ms: float | None = None
    p95_ms: float | None = None
    """Without it a round is one request, and the rounds themselves are what it is taken of."""
    rps: float | None = None
    value: float | None = None
    """Megabytes, for `rss_mb`."""
    facts_left: int | None = None
    """Of the user who was said to be forgotten."""

    @classmethod
    def of(cls, timing: Timing) -> "Figures":
        """The figures of a run of many requests."""
        return cls(timing.percentile_ms(0.5), timing.percentile_ms(0.95), timing.rps)


@dataclass(frozen=True)
class Cell:
    """One measure of one subject with one number of clients, repeated in every round."""

    key: Key
    play: Callable[[str, Effort], Awaitable[Timing]]
    """Runs it once; the text is unique in the run."""


@dataclass
class Results:
    """All rounds so far."""

    rounds: dict[Key, list[Figures]] = field(default_factory=dict[Key, list[Figures]])
    recall_at_10: dict[Key, float] = field(default_factory=dict[Key, float])

    def add(self, key: Key, figures: Figures) -> None:
        """Add a round."""
        self.rounds.setdefault(key, []).append(figures)

    def row(self, key: Key) -> Row:
        """A row of `service.json`."""
        rounds = self.rounds[key]
        medians = {each.name: _median(rounds, each.name) for each in fields(Figures)}
        if medians["p95_ms"] is None and medians["p50_ms"] is not None:
            ranked = sorted(figures.p50_ms or 0.0 for figures in rounds)
            medians["p95_ms"] = ranked[math.ceil(0.95 * len(ranked)) - 1]
        recall = self.recall_at_10.get(key)
        return {
            "measure": key.measure,
            "subject": key.subject,
            "clients": key.clients,
            "facts": key.facts,
            "window_rows": key.window_rows,
            "p50_ms": _rounded(medians["p50_ms"], 3),
            "p95_ms": _rounded(medians["p95_ms"], 3),
            "rps": _rounded(medians["rps"], 1),
            "recall_at_10": _rounded(recall, 4),
            "value": _rounded(medians["value"], 1),
            "facts_left": _rounded(medians["facts_left"], 0),
        }

    def rows(self) -> list[Row]:
        """All rows; those that are compared stand together."""
        places: dict[tuple[object, ...], int] = {}
        for key in self.rounds:
            place = (key.measure, key.window_rows, key.facts, key.clients)
            places.setdefault(place, len(places))
        return [
            self.row(key)
            for key in sorted(
                self.rounds,
                key=lambda key: places[(key.measure, key.window_rows, key.facts, key.clients)],
            )
        ]


async def play(
    groups: Sequence[Sequence[Cell]],
    effort: Effort,
    rounds: int,
    results: Results,
    on_round: Callable[[int], None],
) -> None:
    """Warm every cell up, then measure all of them in each round.

    Cells that are compared run directly after one another, in the opposite order every other
    round, so that neither always comes first.
    """
    for cell in chain.from_iterable(groups):
        clients = cell.key.clients or 1
        await cell.play("warm", Effort(max(20, 2 * clients), effort.seconds))
    for number in range(rounds):
        on_round(number)
        for group in groups:
            for cell in in_turn(group, number):
                results.add(cell.key, Figures.of(await cell.play(f"round-{number}", effort)))


def in_turn(compared: Sequence[_T], number: int) -> Sequence[_T]:
    """The order of a round: backwards in every other."""
    return compared[::-1] if number % 2 else compared


def _median(rounds: Sequence[Figures], name: str) -> float | None:
    known = [value for figures in rounds if (value := getattr(figures, name)) is not None]
    return statistics.median(known) if known else None


def _rounded(value: float | None, digits: int) -> float | None:
    return None if value is None else round(value, digits)
