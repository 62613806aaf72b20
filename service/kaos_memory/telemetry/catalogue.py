"""What is measured: every metric and span with its meaning. `docs/telemetry.md` is made from it.

Labels and attributes have few values each. None holds the name of a tenant, an id of one, or
content: what the service stores never leaves it by this way.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from kaos_memory.engine.usage import CallOutcome


class Kind(StrEnum):
    """How a metric's values add up."""

    HISTOGRAM = "histogram"
    COUNTER = "counter"
    GAUGE = "gauge"


class OperationOutcome(StrEnum):
    """How a call of the contract ended."""

    OK = "ok"
    DEGRADED = "degraded"
    """Answered without a tier, or without having stored or erased."""
    REFUSED = "refused"
    """4xx: the caller's to mend."""
    FAILED = "failed"
    """5xx: the service's to mend."""
    CANCELLED = "cancelled"
    """The caller has gone."""


class TierOutcome(StrEnum):
    """How the reading of one tier ended."""

    OK = "ok"
    FAILED = "failed"
    LATE = "late"


class WorkOutcome(StrEnum):
    """How one attempt at background work ended."""

    DONE = "done"
    RETRIED = "retried"
    """It failed and is due again after a wait."""
    DEAD = "dead"
    """It failed for the last time: its turns wait for somebody to look."""
    POSTPONED = "postponed"
    """The model does not work now; that counts as no failure."""
    LOST = "lost"
    """Erased, changed or taken over meanwhile; nothing was stored."""
    RELEASED = "released"
    """Given back at shutdown."""
    FAILED = "failed"
    """The storage went away, and the lease runs out by itself; or a defect, which is logged."""


@dataclass(frozen=True)
class Metric:
    """One metric by its OpenTelemetry name; its unit is one of UCUM, or empty."""

    name: str
    kind: Kind
    unit: str
    meaning: str
    labels: Mapping[str, str] = field(default_factory=dict[str, str])
    """Each label with its values."""

    @property
    def family(self) -> str:
        """Its name in Prometheus."""
        seconds = "_seconds" if self.unit == "s" else ""
        total = "_total" if self.kind is Kind.COUNTER else ""
        return self.name.replace(".", "_") + seconds + total


def _values(outcomes: type[StrEnum]) -> str:
    return ", ".join(f"`{outcome}`" for outcome in outcomes)


_KIND_OF_WORK = "`fold`, `extract`"

OPERATION_DURATION = Metric(
    "kaos.memory.operation.duration",
    Kind.HISTOGRAM,
    "s",
    "From the whole body of a request to its answer, the wait for a place included",
    {"operation": "`recall`, `list`, `write`, …", "outcome": _values(OperationOutcome)},
)
TIER_DURATION = Metric(
    "kaos.memory.tier.duration",
    Kind.HISTOGRAM,
    "s",
    "The reading of a tier for a recall or a list; `failed` and `late` ones were left out",
    {"tier": "`conversation` (window and digest), `long_term`", "outcome": _values(TierOutcome)},
)
DENIALS = Metric(
    "kaos.memory.denials",
    Kind.COUNTER,
    "{request}",
    "Requests that were refused for who asks, or for whom",
    {
        "operation": "as above",
        "status": "`400` incomplete scope, `401` no valid token, `403` not allowed",
        "reason": "a code of the rule that refused",
    },
)
REJECTED_BODIES = Metric(
    "kaos.memory.rejected_bodies",
    Kind.COUNTER,
    "{request}",
    "Requests whose body was too large (413), late (408), too much (503) or broke a bound (422)",
    {"reason": "`too_large`, `late`, `too_many`, `invalid`"},
)
REQUESTS = Metric(
    "kaos.memory.requests",
    Kind.GAUGE,
    "{request}",
    "Requests that have a place (`request_concurrency` of them for each kind) or wait for one",
    {"state": "`in_work`, `waiting`"},
)
IDEMPOTENT_REPLAYS = Metric(
    "kaos.memory.idempotent_replays",
    Kind.COUNTER,
    "{request}",
    "Writes that were answered with the first answer to their `Idempotency-Key`",
)
ERASURES = Metric(
    "kaos.memory.erasures",
    Kind.COUNTER,
    "{erasure}",
    "Erasures that were carried out and verified; dry runs do not count",
    {"level": "`session`, `agent`, `user`, `store`, `fact`"},
)
ERASED_ROWS = Metric(
    "kaos.memory.erased_rows",
    Kind.COUNTER,
    "{row}",
    "Rows that erasures deleted",
    {"kind": "`turns`, `digests`, `facts`, `sessions`"},
)
RETENTION_ROWS = Metric(
    "kaos.memory.retention_rows",
    Kind.COUNTER,
    "{row}",
    "Rows that were deleted because their retention ended",
    {"kind": "the kind of row"},
)
WORK_DURATION = Metric(
    "kaos.memory.work.duration",
    Kind.HISTOGRAM,
    "s",
    "One attempt at background work; its count by outcome tells work done, retries and dead work",
    {"kind": _KIND_OF_WORK, "outcome": _values(WorkOutcome)},
)
WORK_QUEUE = Metric(
    "kaos.memory.work.queue",
    Kind.GAUGE,
    "{session}",
    "Sessions with background work in the whole store, whichever replica tells it",
    {"kind": _KIND_OF_WORK, "state": "`waiting`, `due`, `leased`, `retrying`, `dead`"},
)
WORK_OLDEST = Metric(
    "kaos.memory.work.oldest_age",
    Kind.GAUGE,
    "s",
    "How long the oldest of them has been due or dead; 0 for what is due later",
    {"kind": _KIND_OF_WORK, "state": "as above"},
)
MODEL_DURATION = Metric(
    "kaos.memory.model.duration",
    Kind.HISTOGRAM,
    "s",
    "One call of a model",
    {"role": "the group of `models.*` in the settings", "outcome": _values(CallOutcome)},
)
MODEL_TOKENS = Metric(
    "kaos.memory.model.tokens",
    Kind.COUNTER,
    "{token}",
    "Tokens that models read and wrote: `usage.total_tokens`, else a quarter of the bytes",
    {"role": "as above"},
)
AUTH_DISABLED = Metric(
    "kaos.memory.auth_disabled",
    Kind.GAUGE,
    "",
    "1 where the names in a request are believed: `auth.mode` is `disabled` or unset; else 0",
)

METRICS = (
    OPERATION_DURATION,
    TIER_DURATION,
    DENIALS,
    REJECTED_BODIES,
    REQUESTS,
    IDEMPOTENT_REPLAYS,
    ERASURES,
    ERASED_ROWS,
    RETENTION_ROWS,
    WORK_DURATION,
    WORK_QUEUE,
    WORK_OLDEST,
    MODEL_DURATION,
    MODEL_TOKENS,
    AUTH_DISABLED,
)

SPAN_PREFIX = "kaos.memory."
SPANS = {
    "recall": "`POST /v1/recall`",
    "list": "`POST /v1/list`",
    "write": "`POST /v1/write`",
    "forget": "`POST /v1/forget`",
    "erase": "Erasing a scope in the storage, or planning it, inside `forget`",
    "fold": "One attempt to fold turns into a digest, its model call included",
    "extract": "One attempt to take facts from turns, its model calls included",
}
"""Spans by name without prefix. Every other operation has one of its own name as well."""

ATTRIBUTES = {
    "outcome": "as in the metrics",
    "request_id": "the request's id, as in its answer and in the logs",
    "scope.level": "`session`, `agent`, `user`, `store`",
    "tiers": "the tiers that were asked for",
    "degraded": "whether the answer lacks something",
    "dry_run": "whether an erasure was only planned",
    "turns": "turns written, recalled or worked on",
    "facts": "facts recalled or extracted",
    "digest": "whether a digest was recalled",
    "attempt": "1 for the first attempt at this work",
}
"""Attributes of spans, by name without prefix."""
