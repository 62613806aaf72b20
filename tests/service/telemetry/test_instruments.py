"""What instruments measure, and that a queue's series ends at 0."""

import asyncio

import pytest
from opentelemetry.trace import StatusCode

from kaos_memory.engine.usage import CallOutcome, ModelCall
from kaos_memory.telemetry.catalogue import TierOutcome, WorkOutcome
from kaos_memory.telemetry.spans import Telemetry

from .conftest import Metrics, Spans


def test_a_state_of_the_queue_that_is_empty_now_is_0(metrics: Metrics):
    metrics.instruments.queue([("fold", "due", 3, 12.5), ("extract", "dead", 1, 60.0)])
    assert metrics.of("work.queue") == {("fold", "due"): 3, ("extract", "dead"): 1}
    assert metrics.of("work.oldest_age") == {("fold", "due"): 12.5, ("extract", "dead"): 60.0}
    metrics.instruments.queue([("fold", "due", 1, 0.5)])
    assert metrics.of("work.queue") == {("fold", "due"): 1, ("extract", "dead"): 0}
    assert metrics.of("work.oldest_age") == {("fold", "due"): 0.5, ("extract", "dead"): 0.0}


def test_calls_of_models_are_measured_by_role(metrics: Metrics):
    for call in (
        ModelCall("embedding", CallOutcome.OK, 0.2, 100),
        ModelCall("embedding", CallOutcome.OK, 0.1, 50),
        ModelCall("summarization", CallOutcome.LATE, 60.0, 0),
    ):
        metrics.instruments.model_called(call)
    assert metrics.of("model.duration") == {("embedding", "ok"): 2, ("summarization", "late"): 1}
    assert metrics.of("model.tokens") == {("embedding",): 150}


def test_what_happens_elsewhere_is_counted(metrics: Metrics):
    metrics.instruments.replayed()
    metrics.instruments.retention_ended("facts", 7)
    metrics.instruments.tier("long_term", TierOutcome.LATE, 3.0)
    metrics.instruments.auth_disabled = True
    assert metrics.of("idempotent_replays") == {(): 1}
    assert metrics.of("retention_rows") == {("facts",): 7}
    assert metrics.of("tier.duration") == {("long_term", "late"): 1}
    assert metrics.of("auth_disabled") == {(): 1}


def test_work_ends_as_it_says_or_as_what_left_it(metrics: Metrics, spans: Spans):
    with spans.telemetry.work("fold"):
        pass
    with spans.telemetry.work("fold") as work:
        work.end_as(WorkOutcome.RETRIED, ValueError("her secret"))
    with pytest.raises(RuntimeError), spans.telemetry.work("extract"):
        raise RuntimeError("her secret")
    with pytest.raises(asyncio.CancelledError), spans.telemetry.work("extract"):
        raise asyncio.CancelledError
    assert metrics.of("work.duration") == {
        ("fold", "done"): 1,
        ("fold", "retried"): 1,
        ("extract", "failed"): 1,
        ("extract", "released"): 1,
    }
    told = [
        (span.status.status_code, (span.attributes or {}).get("error.type")) for span in spans.all()
    ]
    assert told == [
        (StatusCode.UNSET, None),
        (StatusCode.ERROR, "ValueError"),
        (StatusCode.ERROR, "RuntimeError"),
        (StatusCode.UNSET, "CancelledError"),
    ]
    assert "secret" not in "".join(span.to_json() for span in spans.all())


def test_a_part_is_a_child_of_its_operation(spans: Spans):
    with spans.telemetry.operation("forget", {}), spans.telemetry.part("erase"):
        pass
    part, whole = spans.all()
    assert part.parent is not None
    assert whole.context is not None
    assert (part.name, part.parent.span_id) == ("kaos.memory.erase", whole.context.span_id)


def test_without_a_tracer_nothing_is_recorded_but_the_time(metrics: Metrics):
    with Telemetry(metrics.instruments).operation("recall", {}) as running:
        running.note(turns=1)
        assert not running.recording
    assert metrics.of("operation.duration") == {("recall", "ok"): 1}
