"""The instruments of a service: what measures the metrics of the catalogue."""

from collections.abc import Iterable, Mapping
from typing import Protocol

from opentelemetry.metrics import (
    CallbackOptions,
    Counter,
    Histogram,
    Meter,
    NoOpMeter,
    Observation,
)

from kaos_memory.engine.usage import ModelCall
from kaos_memory.telemetry import catalogue
from kaos_memory.telemetry.catalogue import Metric, OperationOutcome, TierOutcome, WorkOutcome

_REQUEST_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_MODEL_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 80.0)


class Requests(Protocol):
    """How many requests there are now."""

    waiting: int
    in_work: int


class Instruments:
    """One method for each thing that happens. All of them are quick and raise nothing.

    Args:
        meter: Makes the instruments. Without one nothing is measured.
    """

    def __init__(self, meter: Meter | None = None) -> None:
        self._meter = meter or NoOpMeter(__name__)
        self.requests: Requests | None = None
        """Asked when somebody collects; None: nothing takes requests."""
        self.auth_disabled = False
        self._work: dict[tuple[str, str], tuple[int, float]] = {}
        self._operations = self._histogram(catalogue.OPERATION_DURATION, _REQUEST_BUCKETS)
        self._tiers = self._histogram(catalogue.TIER_DURATION, _REQUEST_BUCKETS)
        self._attempts = self._histogram(catalogue.WORK_DURATION, _MODEL_BUCKETS)
        self._calls = self._histogram(catalogue.MODEL_DURATION, _MODEL_BUCKETS)
        self._tokens = self._counter(catalogue.MODEL_TOKENS)
        self._denials = self._counter(catalogue.DENIALS)
        self._bodies = self._counter(catalogue.REJECTED_BODIES)
        self._replays = self._counter(catalogue.IDEMPOTENT_REPLAYS)
        self._erasures = self._counter(catalogue.ERASURES)
        self._erased = self._counter(catalogue.ERASED_ROWS)
        self._retention = self._counter(catalogue.RETENTION_ROWS)
        self._observe()

    def operation(self, name: str, outcome: OperationOutcome, seconds: float) -> None:
        """A call of the contract ended."""
        self._operations.record(seconds, {"operation": name, "outcome": outcome.value})

    def tier(self, tier: str, outcome: TierOutcome, seconds: float) -> None:
        """A tier was read for a recall or a list, or was given up."""
        self._tiers.record(seconds, {"tier": tier, "outcome": outcome.value})

    def denied(self, operation: str, status: int, reason: str) -> None:
        """A request was refused for who asks."""
        labels = {"operation": operation, "status": str(status), "reason": reason}
        self._denials.add(1, labels)

    def body_rejected(self, reason: str) -> None:
        """A body was `too_large`, `late` or `invalid`, or there were `too_many` at once."""
        self._bodies.add(1, {"reason": reason})

    def replayed(self) -> None:
        """A write was answered with an earlier answer."""
        self._replays.add(1)

    def erased(self, level: str, rows: Mapping[str, int]) -> None:
        """An erasure was carried out; `rows` are counts by kind of row."""
        self._erasures.add(1, {"level": level})
        for kind, count in rows.items():
            self._erased.add(count, {"kind": kind})

    def retention_ended(self, kind: str, rows: int) -> None:
        """Rows of a kind were deleted because of their age or number."""
        self._retention.add(rows, {"kind": kind})

    def worked(self, kind: str, outcome: WorkOutcome, seconds: float) -> None:
        """An attempt at background work ended."""
        self._attempts.record(seconds, {"kind": kind, "outcome": outcome.value})

    def queue(self, summary: Iterable[tuple[str, str, int, float]]) -> None:
        """The store's background work now.

        Args:
            summary: For each kind and state: kind, state, count, age of the oldest in seconds.
                What is left out is 0.
        """
        # A series that ends is stale for minutes in some systems; 0 is true at once.
        self._work = dict.fromkeys(self._work, (0, 0.0)) | {
            (str(kind), str(state)): (count, oldest) for kind, state, count, oldest in summary
        }

    def model_called(self, call: ModelCall) -> None:
        """A call of a model ended: a `CallListener`."""
        self._calls.record(call.seconds, {"role": call.role, "outcome": call.outcome.value})
        if call.tokens:
            self._tokens.add(call.tokens, {"role": call.role})

    def _histogram(self, metric: Metric, buckets: tuple[float, ...]) -> Histogram:
        return self._meter.create_histogram(
            metric.name,
            metric.unit,
            metric.meaning,
            explicit_bucket_boundaries_advisory=buckets,
        )

    def _counter(self, metric: Metric) -> Counter:
        return self._meter.create_counter(metric.name, metric.unit, metric.meaning)

    def _observe(self) -> None:
        """Gauges are read when somebody collects them: they cost nothing meanwhile."""
        for metric, read in (
            (catalogue.REQUESTS, self._requests_now),
            (catalogue.WORK_QUEUE, self._queue_now),
            (catalogue.WORK_OLDEST, self._oldest_now),
            (catalogue.AUTH_DISABLED, self._auth_now),
        ):
            self._meter.create_observable_gauge(metric.name, [read], metric.unit, metric.meaning)

    def _requests_now(self, _options: CallbackOptions) -> Iterable[Observation]:
        if self.requests is not None:
            yield Observation(self.requests.in_work, {"state": "in_work"})
            yield Observation(self.requests.waiting, {"state": "waiting"})

    def _queue_now(self, _options: CallbackOptions) -> Iterable[Observation]:
        for (kind, state), (count, _) in self._work.items():
            yield Observation(count, {"kind": kind, "state": state})

    def _oldest_now(self, _options: CallbackOptions) -> Iterable[Observation]:
        for (kind, state), (_, oldest) in self._work.items():
            yield Observation(oldest, {"kind": kind, "state": state})

    def _auth_now(self, _options: CallbackOptions) -> Iterable[Observation]:
        yield Observation(int(self.auth_disabled))
