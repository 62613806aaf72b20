"""Where telemetry goes: `/metrics` on its own port, and OTLP where the variables say so."""

import asyncio
import socket
import subprocess
import sys
import time
from collections.abc import Iterator

import httpx
import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from prometheus_client.parser import text_string_to_metric_families

from kaos_memory.engine.usage import CallOutcome, ModelCall
from kaos_memory.settings import Auth, ServiceSettings, SettingsError, validate
from kaos_memory.telemetry.catalogue import METRICS, TierOutcome
from kaos_memory.telemetry.exporters import Exporters, start
from kaos_memory.telemetry.instruments import Instruments

from .collector import Collector

MODEL = {"base_url": "http://127.0.0.1:1/v1", "model": "words"}
DSN = "postgresql://kaos:hunter2@db/memory"


@pytest.fixture(autouse=True)
def _plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ENDPOINT", "TRACES_ENDPOINT", "METRICS_ENDPOINT", "PROTOCOL"):
        monkeypatch.delenv(f"OTEL_EXPORTER_OTLP_{name}", raising=False)


def _settings(port: int, host: str = "127.0.0.1") -> ServiceSettings:
    return validate(
        {
            "storage": {"type": "external", "external": {"dsn": DSN}},
            "models": {"summarization": MODEL, "embedding": MODEL},
            "telemetry": {"metrics_port": port},
            "server": {"host": host},
            "auth": {"mode": "disabled"},
            "store": {"name": "team/store"},
        }
    )


@pytest.fixture
def port() -> int:
    """A free port."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return taken.getsockname()[1]


def _everything_happens(instruments: Instruments) -> None:
    instruments.tier("long_term", TierOutcome.OK, 0.003)
    instruments.denied("recall", 403, "denied")
    instruments.body_rejected("invalid")
    instruments.replayed()
    instruments.erased("user", {"facts": 3})
    instruments.retention_ended("facts", 2)
    instruments.queue([("fold", "due", 2, 3.5)])
    instruments.model_called(ModelCall("embedding", CallOutcome.OK, 0.1, 40))


class _Requests:
    waiting, in_work = 1, 2


async def _scrape(port: int) -> httpx.Response:
    async with httpx.AsyncClient() as client:
        return await client.get(f"http://127.0.0.1:{port}/metrics")


async def test_metrics_answers_with_every_family_of_the_catalogue(port: int):
    exporters = start(_settings(port))
    telemetry = exporters.telemetry
    telemetry.instruments.requests = _Requests()
    _everything_happens(telemetry.instruments)
    with telemetry.operation("recall", {}), telemetry.work("fold"):
        pass
    response = await _scrape(port)
    await exporters.aclose()
    assert response.headers["content-type"].startswith("text/plain")
    families = {family.name: family for family in text_string_to_metric_families(response.text)}
    assert families.keys() == {metric.family.removesuffix("_total") for metric in METRICS}
    for metric in METRICS:
        family = families[metric.family.removesuffix("_total")]
        assert family.documentation == metric.meaning
        for sample in family.samples:
            assert sample.labels.keys() - {"le"} == metric.labels.keys()
    [auth] = families["kaos_memory_auth_disabled"].samples
    assert auth.value == 1
    assert "team/store" not in response.text


async def test_a_mode_that_is_not_set_is_no_verification(port: int):
    settings = _settings(port).model_copy(update={"auth": Auth()})
    exporters = start(settings)
    text = (await _scrape(port)).text
    await exporters.aclose()
    assert "kaos_memory_auth_disabled 1.0" in text


async def test_a_closed_service_frees_the_port_and_another_may_take_it(port: int):
    for _ in range(2):
        exporters = start(_settings(port))
        assert (await _scrape(port)).status_code == 200
        await exporters.aclose()
        with pytest.raises(httpx.ConnectError):
            await _scrape(port)


async def test_a_port_in_use_is_an_error_that_names_the_setting():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(SettingsError) as raised:
            start(_settings(port))
    [problem] = raised.value.problems
    assert f"telemetry.metrics_port is {port}: it cannot be bound on 127.0.0.1" in problem
    assert "Address already in use" in problem
    assert "KAOS_MEMORY_TELEMETRY_METRICS_PORT" in problem


async def test_a_host_that_is_none_is_such_an_error_too(port: int):
    with pytest.raises(SettingsError, match=r"telemetry\.metrics_port .* on no-such-host\.invalid"):
        start(_settings(port, "no-such-host.invalid"))


async def test_port_0_serves_nothing_and_measures_nothing():
    exporters = start(_settings(0))
    assert exporters.server is None
    _everything_happens(exporters.telemetry.instruments)
    await exporters.aclose()


async def test_a_scrape_is_answered_while_the_loop_is_busy(port: int):
    exporters = start(_settings(port))
    asked = asyncio.create_task(asyncio.to_thread(httpx.get, f"http://127.0.0.1:{port}/metrics"))
    await asyncio.sleep(0)
    time.sleep(0.3)  # noqa: ASYNC251 - this is the busy loop
    response = await asyncio.wait_for(asked, 5)
    assert response.elapsed.total_seconds() < 0.3
    await exporters.aclose()


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector.running() as running:
        yield running


def _resource(traces: ExportTraceServiceRequest) -> dict[str, str]:
    attributes = traces.resource_spans[0].resource.attributes
    return {each.key: each.value.string_value for each in attributes}


def _work(exporters: Exporters) -> None:
    with exporters.telemetry.operation("recall", {}) as running:
        running.note(turns=2)
    _everything_happens(exporters.telemetry.instruments)


async def test_otlp_gets_spans_and_metrics_by_the_time_the_service_has_closed(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment=tests")
    exporters = start(_settings(0))
    _work(exporters)
    await exporters.aclose()
    received = dict(collector.received)
    assert received.keys() == {"/v1/traces", "/v1/metrics"}
    traces = ExportTraceServiceRequest.FromString(received["/v1/traces"])
    [span] = traces.resource_spans[0].scope_spans[0].spans
    resource = _resource(traces)
    metrics = ExportMetricsServiceRequest.FromString(received["/v1/metrics"])
    names = {metric.name for metric in metrics.resource_metrics[0].scope_metrics[0].metrics}
    assert span.name == "kaos.memory.recall"
    assert resource["service.name"] == "kaos-memory"
    assert resource["kaos.memory.store"] == "team/store"
    assert resource["deployment.environment"] == "tests"
    assert {"kaos.memory.operation.duration", "kaos.memory.model.tokens"} <= names
    assert "hunter2" not in str(received)


async def test_one_signal_alone_is_exported_where_only_its_variable_is_set(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", f"{collector.url}/spans")
    monkeypatch.setenv("OTEL_SERVICE_NAME", "renamed")
    exporters = start(_settings(0))
    _work(exporters)
    await exporters.aclose()
    [(path, body)] = collector.received
    traces = ExportTraceServiceRequest.FromString(body)
    resource = _resource(traces)
    assert (path, resource["service.name"]) == ("/spans", "renamed")


async def test_a_collector_that_hangs_delays_the_end_by_some_seconds_only(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
    collector.go_on.clear()
    exporters = start(_settings(0))
    _work(exporters)
    started = time.monotonic()
    await exporters.aclose()
    assert 1 < time.monotonic() - started < 5


async def test_a_protocol_that_is_not_spoken_is_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4317")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
    with pytest.raises(SettingsError, match="OTEL_EXPORTER_OTLP_PROTOCOL is 'grpc'"):
        start(_settings(0))


def test_without_an_endpoint_no_exporter_is_loaded():
    code = (
        "import sys, kaos_memory.telemetry.exporters\n"
        "print([m for m in sys.modules if 'otlp' in m or m.startswith('google.protobuf')])"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert loaded.stdout.strip() == "[]"
