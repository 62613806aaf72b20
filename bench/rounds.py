"""Playing all cells in rounds, and what is made of it: medians over rounds, and ratios."""

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from bench.cells import FLOOR, Cell, Effort
from bench.load import Timing


@dataclass(frozen=True)
class Figures:
    """One round of a cell."""

    p50_ms: float
    p95_ms: float
    rps: float

    @classmethod
    def of(cls, timing: Timing) -> "Figures":
        """The figures of a run."""
        return cls(timing.percentile_ms(0.5), timing.percentile_ms(0.95), timing.rps)


@dataclass(frozen=True)
class Key:
    """What a row is about."""

    measure: str
    subject: str
    clients: int
    facts: int | None = None


@dataclass
class Results:
    """All rounds so far."""

    rounds: dict[Key, list[Figures]] = field(default_factory=dict[Key, list[Figures]])
    recall_at_10: dict[Key, float] = field(default_factory=dict[Key, float])

    def add(self, cell: Cell, timing: Timing) -> None:
        """Add a round of a cell."""
        self.rounds.setdefault(_key(cell), []).append(Figures.of(timing))

    def median(self, key: Key) -> Figures:
        """Each figure's median over rounds."""
        rounds = self.rounds[key]
        return Figures(
            statistics.median(figures.p50_ms for figures in rounds),
            statistics.median(figures.p95_ms for figures in rounds),
            statistics.median(figures.rps for figures in rounds),
        )

    def rows(self) -> list[dict[str, object]]:
        """The rows of `service.json`."""
        return [
            {
                "measure": key.measure,
                "subject": key.subject,
                "clients": key.clients,
                "facts": key.facts,
                "p50_ms": round(figures.p50_ms, 3),
                "p95_ms": round(figures.p95_ms, 3),
                "rps": round(figures.rps, 1),
                "recall_at_10": self.recall_at_10.get(key),
            }
            for key, figures in self._medians().items()
        ]

    def _medians(self) -> Mapping[Key, Figures]:
        ordered = sorted(self.rounds, key=lambda key: (key.subject == FLOOR, key.clients))
        return {key: self.median(key) for key in ordered}


def _key(cell: Cell) -> Key:
    return Key(cell.measure, cell.subject, cell.clients, cell.facts)


async def play(
    groups: Sequence[Sequence[Cell]],
    effort: Effort,
    rounds: int,
    on_round: Callable[[int], None],
) -> Results:
    """Warm every cell up, then measure all of them in each round.

    Cells that are compared run directly after one another, in the opposite order every other
    round, so that neither always comes first.
    """
    for group in groups:
        for cell in group:
            warm = Effort(max(50, 4 * cell.clients), effort.seconds)
            await cell.play("warm", warm)
    results = Results()
    for number in range(rounds):
        on_round(number)
        for group in groups:
            for cell in reversed(group) if number % 2 else group:
                results.add(cell, await cell.play(f"round-{number}", effort))
    return results
