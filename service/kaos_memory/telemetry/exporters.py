"""Where metrics and spans go: `/metrics`, and by OTLP where OpenTelemetry's variables say so.

No provider is made global: libraries that would tell of themselves, and might quote what is
stored, have nowhere to.
"""

import asyncio
import os
import time
from collections.abc import Callable, Sequence
from importlib.metadata import version
from threading import Thread

from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.sdk.metrics import AlwaysOffExemplarFilter, MeterProvider
from opentelemetry.sdk.metrics.export import MetricReader
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.trace import Tracer
from prometheus_client import CollectorRegistry

from kaos_memory.settings import ServiceSettings, SettingsError
from kaos_memory.telemetry.instruments import Instruments
from kaos_memory.telemetry.metrics_server import MetricsServer
from kaos_memory.telemetry.spans import Telemetry

_SCOPE = "kaos_memory"
_PROTOCOL = "http/protobuf"
_LAST_EXPORT_SECONDS = 3.0
"""For what is not exported yet when the service ends; a collector may be away."""


class Exporters:
    """A service's telemetry, and where it goes until it is closed.

    Args:
        telemetry: To be handed to the parts of the service.
        server: Serves `/metrics`, if it is served.
        flushing: Each sends what is left.
    """

    def __init__(
        self,
        telemetry: Telemetry,
        server: MetricsServer | None = None,
        flushing: Sequence[Callable[[], None]] = (),
    ) -> None:
        self.telemetry = telemetry
        self.server = server
        self._flushing = flushing

    async def aclose(self) -> None:
        """Send what is left, for some seconds at most, and free the port."""
        # Own threads that may be left behind: the loop's would be waited for at its end.
        threads = [Thread(target=flush, daemon=True) for flush in self._flushing]
        for thread in threads:
            thread.start()
        if threads:
            await asyncio.to_thread(_join, threads)
        if self.server is not None:
            await asyncio.to_thread(self.server.close)


def start(settings: ServiceSettings) -> Exporters:
    """Begin to measure, and to export by OTLP if `OTEL_EXPORTER_OTLP_ENDPOINT` is set.

    Raises:
        SettingsError: the port of `/metrics` cannot be bound, or OTLP is asked for in a protocol
            that is not spoken.
    """
    metrics_by_otlp, traces_by_otlp = _by_otlp("METRICS"), _by_otlp("TRACES")
    registry = CollectorRegistry()
    server = _server(settings, registry)
    resource = Resource(
        {
            "service.name": "kaos-memory",
            "service.version": version("kaos-memorystore"),
            "kaos.memory.store": settings.store.name,
        }
    ).merge(OTELResourceDetector().detect())
    flushing: list[Callable[[], None]] = []
    readers: list[MetricReader] = []
    if server is not None:
        readers.append(
            PrometheusMetricReader(
                disable_target_info=True, scope_info_enabled=False, registry=registry
            )
        )
    if metrics_by_otlp:
        readers.append(_otlp_reader())
    instruments = Instruments()
    if readers:
        meters = MeterProvider(
            readers,
            resource,
            exemplar_filter=AlwaysOffExemplarFilter(),
            shutdown_on_exit=False,
        )
        instruments = Instruments(meters.get_meter(_SCOPE))
        flushing.append(meters.shutdown)
    tracer = None
    if traces_by_otlp:
        tracer, flush = _otlp_tracer(resource)
        flushing.append(flush)
    instruments.auth_disabled = settings.auth.mode in {None, "disabled"}
    if server is not None:
        server.start()
    return Exporters(Telemetry(instruments, tracer), server, flushing)


def _by_otlp(signal: str) -> bool:
    """Whether a signal is exported, by the standard variables."""
    named = (f"OTEL_EXPORTER_OTLP_{signal}_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
    if not any(os.environ.get(name) for name in named):
        return False
    for name in (f"OTEL_EXPORTER_OTLP_{signal}_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"):
        protocol = os.environ.get(name)
        if protocol and protocol != _PROTOCOL:
            problem = f"{name} is {protocol[:40]!r}: only {_PROTOCOL!r} is spoken; leave it out"
            raise SettingsError([problem])
        if protocol:
            break
    return True


def _server(settings: ServiceSettings, registry: CollectorRegistry) -> MetricsServer | None:
    port = settings.telemetry.metrics_port
    if port == 0:
        return None
    try:
        return MetricsServer(settings.server.host, port, registry)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        problem = (
            f"telemetry.metrics_port is {port}: it cannot be bound on {settings.server.host} "
            f"({reason}); choose a free port, or 0 for none (KAOS_MEMORY_TELEMETRY_METRICS_PORT)"
        )
        raise SettingsError([problem]) from None


# Imported only where they are used: the exporters take 0.1 s and 15 MB.


def _otlp_reader() -> MetricReader:
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import (  # noqa: PLC0415
        OTLPMetricExporter,
    )
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader  # noqa: PLC0415

    return PeriodicExportingMetricReader(OTLPMetricExporter())


def _otlp_tracer(resource: Resource) -> tuple[Tracer, Callable[[], None]]:
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import (  # noqa: PLC0415
        OTLPSpanExporter,
    )
    from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
    from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415

    tracers = TracerProvider(resource=resource, shutdown_on_exit=False)
    tracers.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return tracers.get_tracer(_SCOPE), tracers.shutdown


def _join(threads: Sequence[Thread]) -> None:
    until = time.monotonic() + _LAST_EXPORT_SECONDS
    for thread in threads:
        thread.join(max(0.0, until - time.monotonic()))
