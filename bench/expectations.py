"""What must hold, as ratios within the run."""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bench.rounds import Figures, Key, Results

OURS = "ours"


@dataclass(frozen=True)
class Expectation:
    """The median over rounds of a ratio that is better the larger it is."""

    text: str
    measure: str
    clients: int
    least: float
    faster: Callable[[Figures, Figures], float]
    """How many times better the first figures are than the second."""

    def check(self, results: Results, peer: str) -> "Outcome":
        """Compare the two subjects in every round."""
        ours = results.rounds[Key(self.measure, OURS, self.clients)]
        theirs = results.rounds[Key(self.measure, peer, self.clients)]
        return Outcome(self, [self.faster(*pair) for pair in zip(ours, theirs, strict=True)])


@dataclass(frozen=True)
class Outcome:
    """What a run says about an expectation."""

    expectation: Expectation
    ratios: Sequence[float]

    @property
    def figure(self) -> float:
        """The median over rounds."""
        return statistics.median(self.ratios)

    @property
    def met(self) -> bool:
        """Whether the figure is large enough."""
        return self.figure >= self.expectation.least


def _latency(ours: Figures, theirs: Figures) -> float:
    return theirs.p50_ms / ours.p50_ms


def _throughput(ours: Figures, theirs: Figures) -> float:
    return ours.rps / theirs.rps


EXPECTATIONS = (
    Expectation("a write takes no longer", "write", 1, 1.0, _latency),
    Expectation("a window recall is twice as fast", "window_recall", 1, 2.0, _latency),
    Expectation("twice the writes per second", "write", 32, 2.0, _throughput),
    Expectation("twice the window recalls per second", "window_recall", 32, 2.0, _throughput),
)
