"""`docs/telemetry.md`: every metric and span, from the service's own catalogue."""

import sys

from kaos_memory.telemetry.catalogue import ATTRIBUTES, METRICS, SPAN_PREFIX, SPANS, Metric
from kaos_memory.telemetry.request_id import MAX_CHARS

_HEAD = f"""# Metrics, traces and logs

No metric, span or log line holds what was stored, a token or a DSN, and no metric or span a name or
an id of a user, an agent or a session.

- **Prometheus**: `GET /metrics` on a port of its own, 9464 (`telemetry.metrics_port`; 0: none), on
  the address of the service. A port that is taken ends the start with exit code 2.
- **OTLP**: metrics and traces are exported once `OTEL_EXPORTER_OTLP_ENDPOINT` is set, or one of
  them by `OTEL_EXPORTER_OTLP_METRICS_ENDPOINT` or `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT`:

  ```
  OTEL_EXPORTER_OTLP_ENDPOINT=http://collector:4318
  ```

  The protocol is `http/protobuf`. OpenTelemetry's other variables hold as well, such as
  `OTEL_EXPORTER_OTLP_HEADERS`, `OTEL_SERVICE_NAME`, `OTEL_RESOURCE_ATTRIBUTES`,
  `OTEL_TRACES_SAMPLER` and `OTEL_METRIC_EXPORT_INTERVAL`. The resource is `service.name`
  `kaos-memory`, with `kaos.memory.store` as the store's name. Without an endpoint no span is made.
- **Logs**: JSON on standard error, one object for each event.

## Requests and traces

A request may bring an `X-Request-Id` of up to {MAX_CHARS} printable ASCII characters without
spaces; any other is replaced by a new one. The id is in the answer's header, in the span and, as
`request_id`, in each log line of the request. A W3C `traceparent` is continued; log lines have its
`trace_id` and `span_id`, also where no span is exported.

This file is generated: `python -m kaos_dev.telemetry_table > docs/telemetry.md`.

## Metrics

A histogram also counts: `…_count` by `outcome` tells how many ended in which way.

| metric | kind | what it tells | labels |
|---|---|---|---|
"""

_WATCH = """
Worth an alert:

| expression | means |
|---|---|
| `kaos_memory_work_queue{state="dead"} > 0` | work that failed for good and waits for somebody |
| `kaos_memory_work_oldest_age_seconds{state="due"} > 600` | workers cannot keep up |
| `rate(kaos_memory_operation_duration_seconds_count{outcome=~"degraded\\|failed"}[5m]) > 0` | \
tiers are left out, or requests fail |
| `rate(kaos_memory_model_duration_seconds_count{outcome!="ok"}[5m]) > 0` | a model fails |
| `kaos_memory_auth_disabled == 1` | any caller can read for anybody |
"""

_SPANS = """
## Spans

| span | what it spans |
|---|---|
"""

_ATTRIBUTES = """
A span of what failed, of the service's or a model's fault, has the status error; `error.type` names
the exception, whose message is left out. Other attributes:

| attribute | meaning |
|---|---|
"""


def table() -> str:
    """The whole page."""
    return "".join(
        [
            _HEAD,
            *(_metric(metric) for metric in METRICS),
            _WATCH,
            _SPANS,
            *(f"| `{SPAN_PREFIX}{name}` | {meaning} |\n" for name, meaning in SPANS.items()),
            _ATTRIBUTES,
            *(f"| `{SPAN_PREFIX}{name}` | {text} |\n" for name, text in ATTRIBUTES.items()),
        ]
    )


def _metric(metric: Metric) -> str:
    labels = "; ".join(f"`{label}`: {values}" for label, values in metric.labels.items())
    return f"| `{metric.family}` | {metric.kind} | {metric.meaning} | {labels} |\n"


if __name__ == "__main__":
    sys.stdout.write(table())
