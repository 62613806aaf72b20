"""What must hold for our service."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from bench.recall.measures import ALL, Row
from bench.recall.playing import EVERYBODY

OURS = "ours"


@dataclass(frozen=True)
class Floor:
    """A bound of one figure, over all questions of a category."""

    text: str
    category: str
    figure: Callable[[Row], float]
    bound: float
    at_most: bool = False


@dataclass(frozen=True)
class Outcome:
    """What a run says about a floor."""

    floor: Floor
    figure: float

    @property
    def met(self) -> bool:
        """Whether the figure is within the bound."""
        if self.floor.at_most:
            return self.figure <= self.floor.bound
        return self.figure >= self.floor.bound

    @property
    def sentence(self) -> str:
        """The floor with its figure."""
        side = "at most" if self.floor.at_most else "at least"
        return f"{self.floor.text}: {self.figure:.4g} ({side} {self.floor.bound:g})"


FLOORS = (
    Floor("recall@20", ALL, lambda row: row.recall_at_20, 0.87),
    Floor("hit@20", ALL, lambda row: row.hit_at_20, 0.92),
    Floor("MRR", ALL, lambda row: row.mrr, 0.61),
    Floor("p95 in ms for one owner's rows", EVERYBODY, lambda row: row.p95_ms, 30, at_most=True),
)


def check(rows: Sequence[Row]) -> Iterator[Outcome]:
    """The floors beside their figures."""
    ours = {row.category: row for row in rows if row.subject == OURS}
    for floor in FLOORS:
        yield Outcome(floor, floor.figure(ours[floor.category]))
