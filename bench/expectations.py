"""What must hold: ratios to the published service within the run, and bounds of ours."""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from bench.published import NAME
from bench.rounds import Figures, Key, Results

OURS = "ours"


@dataclass(frozen=True)
class Outcome:
    """What a run says about an expectation."""

    met: bool
    sentence: str


@dataclass(frozen=True)
class Better:
    """The median over rounds of how many times better ours is than the published service."""

    text: str
    key: Key
    least: float
    ratio: Callable[[Figures, Figures], float]

    def check(self, results: Results) -> Outcome | None:
        """Compare the two in every round; None where the run did not measure them."""
        ours = results.rounds.get(self.key)
        theirs = results.rounds.get(replace(self.key, subject=NAME))
        if ours is None or theirs is None:
            return None
        ratios = [self.ratio(*pair) for pair in zip(ours, theirs, strict=True)]
        figure = statistics.median(ratios)
        sentence = (
            f"{self.text} (x{figure:.2f}, at least x{self.least:.2f}; "
            f"rounds x{min(ratios):.2f} to x{max(ratios):.2f})"
        )
        return Outcome(figure >= self.least, sentence)


@dataclass(frozen=True)
class Within:
    """A figure of ours by itself."""

    text: str
    key: Key
    field: str
    """Its name in the row."""
    least: float = 0.0
    most: float = float("inf")

    def check(self, results: Results) -> Outcome | None:
        """Look at the row; None where the run did not measure it."""
        if self.key not in results.rounds:
            return None
        figure = results.row(self.key)[self.field]
        assert isinstance(figure, int | float)
        bound = f"at most {self.most:,g}" if self.least == 0.0 else f"at least {self.least:,g}"
        sentence = f"{self.text} ({self.field} {figure:,g}, {bound})"
        return Outcome(self.least <= figure <= self.most, sentence)


def judge(results: Results) -> list[Outcome]:
    """All that the run can tell."""
    return [outcome for each in EXPECTATIONS if (outcome := each.check(results)) is not None]


def _latency(ours: Figures, theirs: Figures) -> float:
    assert ours.p50_ms is not None
    assert theirs.p50_ms is not None
    return theirs.p50_ms / ours.p50_ms


def _throughput(ours: Figures, theirs: Figures) -> float:
    assert ours.rps is not None
    assert theirs.rps is not None
    return ours.rps / theirs.rps


_CROWDED = Key("write", OURS, 32, window_rows=100_000)
_LARGEST = Key("full_recall", OURS, 1, 100_000)
_FORGOTTEN = Key("forget_user", OURS, 1, 10_000)

EXPECTATIONS: Sequence[Better | Within] = (
    Better("1 client: a write takes no longer", Key("write", OURS, 1), 1.0, _latency),
    Better(
        "1 client: window recall in half the time", Key("window_recall", OURS, 1), 2.0, _latency
    ),
    Better("32 clients: twice the writes", Key("write", OURS, 32), 2.0, _throughput),
    Better(
        "32 clients: twice the window recalls", Key("window_recall", OURS, 32), 2.0, _throughput
    ),
    Better("32 clients, 100,000 window rows: twice the writes", _CROWDED, 2.0, _throughput),
    Better("1 client, 100,000 facts: full recall in a fifth of the time", _LARGEST, 5.0, _latency),
    Within("100,000 facts: recall is exact", _LARGEST, "recall_at_10", least=1.0),
    Within("a user of 10,000 facts is forgotten in 2 s", _FORGOTTEN, "p50_ms", most=2_000),
    Within("nothing is left of that user", _FORGOTTEN, "facts_left", most=0),
    Within("ready in 1.5 s", Key("ready", OURS), "p50_ms", most=1_500),
)
