"""From what was found to figures."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bench.load import Timing
from bench.recall.locomo import CATEGORIES, Question

MEASURE = "recall_quality"
ALL = "all"
TOP = 20
"""Results that are asked for."""


@dataclass(frozen=True)
class Answer:
    """What one subject found for one question."""

    question: Question
    found: Sequence[frozenset[str]]
    """For each result, the best first, the ids of the turns that it is or comes from."""
    seconds: float

    def recall_at(self, results: int) -> float:
        """The share of the evidence among the first results."""
        held = frozenset[str]().union(*self.found[:results])
        return len(self.question.evidence & held) / len(self.question.evidence)

    @property
    def reciprocal_rank(self) -> float:
        """1 over the place of the first result with evidence; 0 where there is none."""
        for place, turns in enumerate(self.found[:TOP], start=1):
            if turns & self.question.evidence:
                return 1 / place
        return 0.0


@dataclass(frozen=True)
class Row:
    """One row of `recall.json`."""

    measure: str
    subject: str
    category: str
    questions: int
    recall_at_10: float
    recall_at_20: float
    hit_at_20: float
    mrr: float
    p50_ms: float
    p95_ms: float


def row(subject: str, category: str, answers: Sequence[Answer]) -> Row:
    """The means over questions, and the latencies' percentiles."""
    timing = Timing([answer.seconds for answer in answers])
    return Row(
        MEASURE,
        subject,
        category,
        len(answers),
        _mean([answer.recall_at(10) for answer in answers]),
        _mean([answer.recall_at(TOP) for answer in answers]),
        _mean([float(answer.recall_at(TOP) > 0) for answer in answers]),
        _mean([answer.reciprocal_rank for answer in answers]),
        round(timing.percentile_ms(0.5), 3),
        round(timing.percentile_ms(0.95), 3),
    )


def rows_by_category(subject: str, answers: Sequence[Answer]) -> Iterator[Row]:
    """One row for each category that was asked about, and one for all."""
    for category in CATEGORIES.values():
        some = [answer for answer in answers if answer.question.category == category]
        if some:
            yield row(subject, category, some)
    yield row(subject, ALL, answers)


def _mean(figures: Sequence[float]) -> float:
    return round(sum(figures) / len(figures), 4)
