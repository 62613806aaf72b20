"""What operators see of calls: how they ended and how long they took; never who or what."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

from fastapi import FastAPI
from fastapi.responses import Response
from opentelemetry.trace import StatusCode

from kaos_memory.api import problems
from kaos_memory.api.limits import Places
from kaos_memory.api.operations import Call, Operation, answer, mount
from kaos_memory.authorization.decide import Denied, Incomplete
from kaos_memory.contract import (
    MAX_BODY_BYTES,
    Erasure,
    ErasureLevel,
    ForgetResponse,
    LongTermContext,
    MediumTermContext,
    Message,
    RecallRequest,
    RecallResponse,
    ShortTermContext,
    WriteResponse,
)
from kaos_memory.identity.caller import Caller
from kaos_memory.storage.protocol import StorageUnavailable
from kaos_memory.telemetry.catalogue import ATTRIBUTES, METRICS, SPANS
from kaos_memory.telemetry.spans import Telemetry

from .conftest import LogLines, Metrics, Script, Scripted, Spans

PERSON, AGENT, SESSION = "alice-of-wonderland", "kaos://agent/team/rabbit", "tea-party-7"
SAID = "the queen of hearts baked tarts"
SCOPE = {"level": "user", "principal": PERSON, "session_id": SESSION}
RECALL = {"scope": SCOPE, "query": SAID}
WRITE = {
    "attribution": {"principal": PERSON, "agent_client_id": AGENT, "session_id": SESSION},
    "turns": [{"role": "user", "content": SAID}, {"role": "assistant", "content": SAID}],
}


def _recalled(*, degraded: bool = False) -> RecallResponse:
    return RecallResponse(
        long_term=LongTermContext(facts=[{"id": "1", "memory": SAID, "user_id": PERSON}]),
        medium_term=MediumTermContext(summary=SAID),
        short_term=ShortTermContext(window=[("user", SAID), ("assistant", SAID)]),
        degraded=degraded,
    )


def _gives(message: Message) -> Script:
    return lambda _body, _who: message


def _raises(error: Exception) -> Script:
    def script(_body: Any, _who: Caller) -> Message:
        raise error

    return script


async def test_a_call_is_counted_by_how_it_ended(scripted: Scripted, metrics: Metrics):
    scripts = {
        "ok": _gives(_recalled()),
        "degraded": _gives(_recalled(degraded=True)),
        "refused": _raises(Denied("store scope is admin-only")),
        "failed": _raises(StorageUnavailable("gone")),
    }
    for script in (*scripts.values(), scripts["ok"]):
        scripted.scripts["recall"] = script
        await scripted.post("recall", RECALL)
    assert metrics.of("operation.duration") == {
        ("recall", "ok"): 2,
        ("recall", "degraded"): 1,
        ("recall", "refused"): 1,
        ("recall", "failed"): 1,
    }


async def test_a_denial_is_counted_by_the_rule_that_refused(scripted: Scripted, metrics: Metrics):
    scripted.scripts["recall"] = _raises(Denied("store scope is admin-only"))
    scripted.scripts["write"] = _raises(Incomplete("incomplete user scope"))
    assert (await scripted.post("recall", RECALL)).status_code == 403
    assert (await scripted.post("write", WRITE)).status_code == 400
    assert metrics.of("denials") == {
        ("recall", "403", "denied"): 1,
        ("write", "400", "incomplete"): 1,
    }


async def test_rejected_bodies_are_counted_however_they_come(scripted: Scripted, metrics: Metrics):
    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(MAX_BODY_BYTES // 1_000_000 + 2):
            yield b" " * 1_000_000

    assert (await scripted.post("recall", {"scope": SCOPE})).status_code == 422
    declared = await scripted.client.post("/v1/write", content=b" " * (MAX_BODY_BYTES + 1))
    streamed = await scripted.client.post("/v1/write", content=chunks())
    assert (declared.status_code, streamed.status_code) == (413, 413)
    assert metrics.of("rejected_bodies") == {("invalid",): 1, ("too_large",): 2}


async def test_an_erasure_counts_its_rows_and_a_plan_does_not(scripted: Scripted, metrics: Metrics):
    receipt = Erasure(level=ErasureLevel.USER, turns=3, digests=1, facts=4, sessions=2, residue=0)
    scripted.scripts["forget"] = lambda body, _who: ForgetResponse(
        forgotten=not body.dry_run, receipt=receipt
    )
    await scripted.post("forget", {"scope": SCOPE, "dry_run": True})
    assert metrics.of("erasures") == {}
    await scripted.post("forget", {"scope": SCOPE})
    assert metrics.of("erasures") == {("user",): 1}
    assert metrics.of("erased_rows") == {
        ("turns",): 3,
        ("digests",): 1,
        ("facts",): 4,
        ("sessions",): 2,
    }


async def test_requests_are_seen_in_work_and_waiting(metrics: Metrics):
    app, held = FastAPI(), asyncio.Event()
    problems.install(app)

    async def run(_body: Any, _call: Call) -> Response:
        await held.wait()
        return answer(WriteResponse(accepted=True))

    places = Places(1)
    recall = Operation("/v1/recall", "", RecallRequest, RecallResponse, run)
    mount(app, [recall], places, Telemetry(metrics.instruments))
    assert metrics.of("requests") == {("in_work",): 0, ("waiting",): 0}
    async with places.held(changes=False):
        waiting = asyncio.create_task(places.held(changes=False).__aenter__())
        await asyncio.sleep(0)
        assert metrics.of("requests") == {("in_work",): 1, ("waiting",): 1}
    await waiting
    assert metrics.of("requests") == {("in_work",): 1, ("waiting",): 0}


async def test_a_span_tells_counts_and_levels(scripted: Scripted, spans: Spans):
    scripted.scripts["recall"] = _gives(_recalled(degraded=True))
    scripted.scripts["write"] = _gives(WriteResponse(accepted=True))
    response = await scripted.post("recall", RECALL, {"X-Request-Id": "run-1"})
    await scripted.post("write", WRITE)
    assert response.headers["x-request-id"] == "run-1"
    assert spans.attributes("recall") == {
        "request_id": "run-1",
        "scope.level": "user",
        "tiers": ("short_term", "medium_term", "long_term"),
        "degraded": True,
        "turns": 2,
        "facts": 1,
        "digest": True,
        "outcome": "degraded",
    }
    assert spans.attributes("write")["turns"] == 2


async def test_the_callers_trace_is_continued(scripted: Scripted, spans: Spans):
    scripted.scripts["recall"] = _gives(_recalled())
    trace, parent = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
    await scripted.post("recall", RECALL, {"traceparent": f"00-{trace}-{parent}-01"})
    await scripted.post("recall", RECALL, {"traceparent": f"{PERSON}"})
    continued, fresh = spans.all()
    assert continued.parent is not None
    assert f"{continued.parent.trace_id:032x}" == trace
    assert f"{continued.parent.span_id:016x}" == parent
    assert fresh.parent is None


async def test_a_crash_is_logged_with_the_ids_of_its_request_and_answered_with_them(
    scripted: Scripted,
    spans: Spans,
    log_lines: LogLines,
):
    scripted.scripts["recall"] = _raises(ValueError(f"no such thing as {SAID}"))
    response = await scripted.post("recall", RECALL, {"X-Request-Id": "run-2"})
    assert (response.status_code, response.headers["x-request-id"]) == (500, "run-2")
    [line] = log_lines()
    [span] = spans.all()
    assert span.context is not None
    assert line["message"] == "request_crashed"
    assert line["request_id"] == "run-2"
    assert line["trace_id"] == f"{span.context.trace_id:032x}"
    assert line["span_id"] == f"{span.context.span_id:016x}"
    assert span.status.status_code is StatusCode.ERROR
    assert span.attributes is not None
    assert span.attributes["error.type"] == "ValueError"
    assert not span.events
    assert SAID not in json.dumps(line) + span.to_json()


async def test_no_name_no_id_and_no_content_gets_into_metrics_spans_or_logs(
    scripted: Scripted, metrics: Metrics, spans: Spans, log_lines: LogLines
):
    headers = {"X-Actor": AGENT}
    for script in (
        _gives(_recalled()),
        _raises(Denied(PERSON)),
        _raises(ValueError(SAID)),
    ):
        scripted.scripts["recall"] = script
        await scripted.post("recall", RECALL, headers)
    scripted.scripts["write"] = _gives(WriteResponse(accepted=True))
    await scripted.post("write", WRITE, headers)
    await scripted.post("write", {**WRITE, PERSON: SAID}, headers)
    await scripted.post("recall", {"scope": {**SCOPE, "level": SAID}}, headers)
    told = str(log_lines()) + str(metrics.all()) + "".join(s.to_json() for s in spans.all())
    assert "request_crashed" in told
    assert len(spans.all()) == 6
    for secret in (PERSON, AGENT, SESSION, SAID, "tarts", "rabbit"):
        assert secret not in told


async def test_everything_that_is_told_is_in_the_catalogue(
    scripted: Scripted, metrics: Metrics, spans: Spans
):
    scripted.scripts["recall"] = _gives(_recalled())
    await scripted.post("recall", RECALL)
    with spans.telemetry.work("fold") as work:
        work.note(attempt=1, turns=2)
    with spans.telemetry.part("erase"):
        pass
    listed = {metric.name.removeprefix("kaos.memory.") for metric in METRICS}
    assert metrics.all().keys() <= listed
    for span in spans.all():
        assert span.name.removeprefix("kaos.memory.") in SPANS
        for name in span.attributes or {}:
            assert name.removeprefix("kaos.memory.") in ATTRIBUTES
