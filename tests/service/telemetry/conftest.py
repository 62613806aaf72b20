"""The HTTP layer with all its telemetry, read back in this process; its answers are scripted."""

import json
import logging
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from io import StringIO
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from fastapi.responses import Response
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from kaos_memory.api import problems
from kaos_memory.api.limits import BodyLimit, Places
from kaos_memory.api.operations import Call, Operation, answer, mount
from kaos_memory.api.request_ids import RequestIds
from kaos_memory.contract import (
    ForgetRequest,
    ForgetResponse,
    Message,
    RecallRequest,
    RecallResponse,
    WriteRequest,
    WriteResponse,
)
from kaos_memory.identity.caller import Caller
from kaos_memory.telemetry import logs
from kaos_memory.telemetry.instruments import Instruments
from kaos_memory.telemetry.spans import Telemetry


class Metrics:
    """What was measured so far."""

    def __init__(self) -> None:
        self._reader = InMemoryMetricReader()
        self.provider = MeterProvider([self._reader], shutdown_on_exit=False)
        self.instruments = Instruments(self.provider.get_meter("tests"))

    def all(self) -> dict[str, dict[tuple[str, ...], float]]:
        """By name without prefix and by the labels' values: values, and counts of histograms."""
        found: dict[str, dict[tuple[str, ...], float]] = {}
        data = self._reader.get_metrics_data()
        for resource in data.resource_metrics if data else ():
            for scope in resource.scope_metrics:
                for metric in scope.metrics:
                    series = found.setdefault(metric.name.removeprefix("kaos.memory."), {})
                    for point in metric.data.data_points:
                        labels: Mapping[str, Any] = point.attributes or {}
                        value = getattr(point, "value", None)
                        series[tuple(str(each) for each in labels.values())] = (
                            getattr(point, "count", 0) if value is None else value
                        )
        return found

    def of(self, name: str) -> dict[tuple[str, ...], float]:
        """The series of one metric."""
        return self.all().get(name, {})


@pytest.fixture
def metrics() -> Iterator[Metrics]:
    made = Metrics()
    yield made
    made.provider.shutdown()


@dataclass
class Spans:
    """Spans that ended."""

    exporter: InMemorySpanExporter
    telemetry: Telemetry

    def all(self) -> list[ReadableSpan]:
        return list(self.exporter.get_finished_spans())

    def attributes(self, name: str) -> dict[str, Any]:
        """Those of the only span of a name, without prefix."""
        [span] = [span for span in self.all() if span.name == f"kaos.memory.{name}"]
        given = span.attributes or {}
        return {key.removeprefix("kaos.memory."): value for key, value in given.items()}


@pytest.fixture
def spans(metrics: Metrics) -> Iterator[Spans]:
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    yield Spans(exporter, Telemetry(metrics.instruments, provider.get_tracer("tests")))
    provider.shutdown()


LogLines = Callable[[], list[dict[str, Any]]]


@pytest.fixture
def restored_logging() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    root.handlers.clear()  # `set_up` closes those that it replaces, and these are pytest's
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.fixture
def log_lines(restored_logging: None) -> LogLines:
    """All lines that the service logged in this test."""
    del restored_logging
    logs.set_up()
    stream = StringIO()
    [handler] = logging.getLogger().handlers
    assert isinstance(handler, logging.StreamHandler)
    handler.setStream(stream)
    return lambda: [json.loads(line) for line in stream.getvalue().splitlines()]


Script = Callable[[Any, Caller], Message]


@dataclass
class Scripted:
    """The HTTP layer; `scripts` answers by operation, or raises."""

    client: httpx.AsyncClient
    scripts: dict[str, Script] = field(default_factory=dict[str, Script])

    async def post(
        self, operation: str, body: Mapping[str, Any], headers: Mapping[str, str] | None = None
    ) -> httpx.Response:
        return await self.client.post(f"/v1/{operation}", json=body, headers=headers)


_KINDS: dict[str, tuple[type[Message], type[Message]]] = {
    "recall": (RecallRequest, RecallResponse),
    "write": (WriteRequest, WriteResponse),
    "forget": (ForgetRequest, ForgetResponse),
}


@pytest.fixture
async def scripted(spans: Spans) -> AsyncIterator[Scripted]:
    app = FastAPI()
    app.add_middleware(BodyLimit, refused=spans.telemetry.instruments.body_rejected)
    app.add_middleware(RequestIds)
    problems.install(app)
    scripts: dict[str, Script] = {}

    def operation(name: str) -> Operation:
        async def run(body: Any, call: Call) -> Response:
            return answer(scripts[name](body, call.caller))

        return Operation(f"/v1/{name}", name, *_KINDS[name], run)

    mount(app, [operation(name) for name in _KINDS], Places(1), spans.telemetry)
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://service") as client:
        yield Scripted(client, scripts)
