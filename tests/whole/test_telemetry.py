"""A service's metrics, spans and logs: what it did, and nothing of whom or about what."""

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from prometheus_client.parser import text_string_to_metric_families

from kaos_dev.model_server import ModelServer
from kaos_dev.model_server.script import Behaviour
from kaos_dev.service_process import ServiceProcess
from kaos_memory.api.serve import EXIT_BAD_SETTINGS

from ..service.telemetry.collector import Collector
from .conftest import until

PERSON, AGENT, SESSION = "mad-hatter", "kaos://agent/wonderland/dormouse", "unbirthday-42"
WHO = {"principal": PERSON, "agent_client_id": AGENT, "session_id": SESSION}
SCOPE = {"level": "session", **WHO}
SAID = "Sentence {} is about a vorpal teapot that snicker-snacked."
SECRETS = (PERSON, AGENT, SESSION, "hatter", "dormouse", "unbirthday", "vorpal", "snicker")


async def _metrics(process: ServiceProcess) -> str:
    async with httpx.AsyncClient() as client:
        return (await client.get(f"http://127.0.0.1:{process.metrics_port}/metrics")).text


def _values(text: str, sample: str) -> dict[tuple[str, ...], float]:
    """By the values of the labels, in the order of the labels' names."""
    return {
        tuple(value for _, value in sorted(found.labels.items())): found.value
        for family in text_string_to_metric_families(text)
        for found in family.samples
        if found.name == sample
    }


async def _post(client: httpx.AsyncClient, path: str, **body: Any) -> httpx.Response:
    return await client.post(f"/v1/{path}", json=body)


async def test_what_a_service_did_is_seen_and_nothing_of_whom_or_about_what(
    environment: dict[str, str], models: ModelServer, tmp_path: Path
):
    log = tmp_path / "log"
    with Collector.running() as collector:
        environment["OTEL_EXPORTER_OTLP_ENDPOINT"] = collector.url
        process = ServiceProcess(environment, log)
        await asyncio.to_thread(process.start)
        models.script(Behaviour(endpoint="chat", times=1, status=500))
        async with httpx.AsyncClient(base_url=process.url, timeout=20) as client:
            for number in range(40):
                turn = {"role": "user", "content": SAID.format(number)}
                await _post(client, "write", attribution=WHO, turns=[turn])

            async def worked_off() -> bool:
                done = _values(await _metrics(process), "kaos_memory_work_duration_seconds_count")
                return {("extract", "done"), ("fold", "done")} <= done.keys()

            await until(worked_off)
            await _post(client, "recall", scope=SCOPE, query="Which vorpal teapot?")
            await _post(client, "recall", scope={"level": "store"}, query=PERSON, top_k=SAID)
            denied = await client.post(
                "/v1/recall",
                json={"scope": {"level": "store"}, "query": PERSON},
                headers={"X-Actor": AGENT},
            )
            assert denied.status_code == 403
            await _post(client, "forget", scope=SCOPE)
        text = await _metrics(process)
        await asyncio.to_thread(process.stop)
    operations = _values(text, "kaos_memory_operation_duration_seconds_count")
    assert operations[("write", "ok")] == 40
    assert operations[("recall", "ok")] == 1
    assert operations[("recall", "refused")] == 2
    assert operations[("forget", "ok")] == 1
    assert _values(text, "kaos_memory_denials_total") == {("recall", "denied", "403"): 1}
    assert _values(text, "kaos_memory_erasures_total") == {("session",): 1}
    assert _values(text, "kaos_memory_erased_rows_total")[("facts",)] > 0
    assert _values(text, "kaos_memory_auth_disabled") == {(): 1}
    calls = _values(text, "kaos_memory_model_duration_seconds_count")
    assert calls[("unavailable", "summarization")] == 1
    assert calls[("ok", "summarization")] >= 2
    assert _values(text, "kaos_memory_model_tokens_total").keys() == {
        ("embedding",),
        ("summarization",),
    }
    tiers = _values(text, "kaos_memory_tier_duration_seconds_count")
    assert tiers == {("ok", "conversation"): 1, ("ok", "long_term"): 1}

    exported = [body for path, body in collector.received if path == "/v1/traces"]
    spans = [
        span
        for body in exported
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    ]
    names = {span.name.removeprefix("kaos.memory.") for span in spans}
    assert names == {"recall", "write", "forget", "erase", "fold", "extract"}
    told = log.read_text() + text + str([body for _, body in collector.received])
    assert "work_failed" in told
    assert not [secret for secret in SECRETS if secret in told]


async def test_a_metrics_port_in_use_ends_the_start_with_a_sentence(
    environment: dict[str, str], tmp_path: Path
):
    first = ServiceProcess(environment, tmp_path / "log")
    with first:
        variables = {"KAOS_MEMORY_TELEMETRY_METRICS_PORT": str(first.metrics_port)}
        ended = await asyncio.to_thread(
            subprocess.run,
            [sys.executable, "-m", "kaos_memory.api.serve"],
            env={**environment, **variables},
            capture_output=True,
            text=True,
            timeout=60,
        )
    assert ended.returncode == EXIT_BAD_SETTINGS
    assert f"error: telemetry.metrics_port is {first.metrics_port}: it cannot" in ended.stderr
