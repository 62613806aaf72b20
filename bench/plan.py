"""How much a run measures."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Effort:
    """How long a cell runs: until one of the two is reached."""

    requests: int
    """Over all its clients."""
    seconds: float


@dataclass(frozen=True)
class Plan:
    """The sizes of everything."""

    effort: Effort
    rounds: int
    """Rounds of load to take medians of."""
    stores: Sequence[int]
    """Facts in the store, ascending: it grows from one size to the next."""
    window_rows: int
    """Turns of other sessions that lie in the windows when crowded writes are measured."""
    forgotten: Sequence[int]
    """Facts of the users who are erased; a user of each size in each erasing round."""
    erasing_rounds: int
    starts: int
    questions: int
    """Asked of each store to tell recall@10."""
    sessions: int = 100
    """Sessions whose windows are read."""


FULL = Plan(
    effort=Effort(requests=2_000, seconds=1.5),
    rounds=5,
    stores=(1_000, 20_000, 100_000),
    window_rows=100_000,
    forgotten=(100, 1_000, 10_000),
    erasing_rounds=3,
    starts=5,
    questions=200,
)
QUICK = Plan(
    effort=Effort(requests=200, seconds=0.25),
    rounds=2,
    stores=(1_000, 5_000),
    window_rows=10_000,
    forgotten=(100, 1_000),
    erasing_rounds=1,
    starts=1,
    questions=50,
)
