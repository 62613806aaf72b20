"""Measuring a piece of work: its time as a metric, and where spans are recorded, as a span."""

import asyncio
import time
from collections.abc import Callable, Mapping
from contextvars import Token
from dataclasses import dataclass
from enum import StrEnum
from types import TracebackType
from typing import Generic, Self, TypeVar

from opentelemetry import context as contexts
from opentelemetry.context import Context
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, Tracer, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from opentelemetry.util.types import AttributeValue

from kaos_memory.telemetry import request_id
from kaos_memory.telemetry.catalogue import SPAN_PREFIX, OperationOutcome, WorkOutcome
from kaos_memory.telemetry.instruments import Instruments

_Outcome = TypeVar("_Outcome", bound=StrEnum)
_ERROR_TYPE = "error.type"
_PARENT = "traceparent"
_W3C = TraceContextTextMapPropagator()


@dataclass(frozen=True)
class Endings(Generic[_Outcome]):
    """How work ends if nothing says otherwise."""

    usual: _Outcome
    crashed: _Outcome
    cancelled: _Outcome
    errors: frozenset[_Outcome]
    """Those that make a span's status an error."""


_OF_OPERATIONS = Endings(
    OperationOutcome.OK,
    OperationOutcome.FAILED,
    OperationOutcome.CANCELLED,
    errors=frozenset({OperationOutcome.FAILED}),
)
_OF_WORK = Endings(
    WorkOutcome.DONE,
    WorkOutcome.FAILED,
    WorkOutcome.RELEASED,
    errors=frozenset(
        {WorkOutcome.FAILED, WorkOutcome.RETRIED, WorkOutcome.POSTPONED, WorkOutcome.DEAD}
    ),
)


class Measured(Generic[_Outcome]):
    """Work that is measured while the context is open; `outcome` is how it ended.

    An exception that leaves it is not recorded: its message may quote what was stored. Its type
    is.
    """

    def __init__(
        self,
        name: str,
        endings: Endings[_Outcome],
        record: Callable[[_Outcome, float], None],
        *,
        tracer: Tracer | None,
        parent: Context | None = None,
        kind: SpanKind = SpanKind.INTERNAL,
    ) -> None:
        self.outcome = endings.usual
        self._endings = endings
        self._name = name
        self._record = record
        self._tracer = tracer
        self._parent = parent
        self._kind = kind
        self._span: Span | None = None
        self._token: Token[Context] | None = None

    @property
    def recording(self) -> bool:
        """Whether anybody will see what is noted."""
        return self._span is not None and self._span.is_recording()

    def note(self, **attributes: AttributeValue | None) -> None:
        """Add attributes to the span, by their names in the catalogue with `__` for a dot."""
        if self._span is not None:
            for name, value in attributes.items():
                if value is not None:
                    self._span.set_attribute(SPAN_PREFIX + name.replace("__", "."), value)

    def end_as(self, outcome: _Outcome, error: Exception) -> None:
        """Say how it ended because of an exception that does not leave."""
        self.outcome = outcome
        if self._span is not None:
            self._span.set_attribute(_ERROR_TYPE, type(error).__qualname__)

    def __enter__(self) -> Self:
        context = self._parent
        if self._tracer is not None:
            self._span = self._tracer.start_span(
                SPAN_PREFIX + self._name, context=context, kind=self._kind
            )
            context = set_span_in_context(self._span, context)
            self.note(request_id=request_id.current())
        if context is not None:
            self._token = contexts.attach(context)
        self._started = time.perf_counter()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        seconds = time.perf_counter() - self._started
        if kind is not None and self.outcome is self._endings.usual:
            gone = issubclass(kind, asyncio.CancelledError)
            self.outcome = self._endings.cancelled if gone else self._endings.crashed
        self._record(self.outcome, seconds)
        if self._span is not None:
            self.note(outcome=self.outcome.value)
            if kind is not None:
                self._span.set_attribute(_ERROR_TYPE, kind.__qualname__)
            if self.outcome in self._endings.errors:
                self._span.set_status(Status(StatusCode.ERROR))
            self._span.end()
        if self._token is not None:
            contexts.detach(self._token)


class Telemetry:
    """What the parts of a service tell of themselves.

    Args:
        instruments: Measure. By default nothing is measured.
        tracer: Records spans; None where nobody reads them, which costs nothing.
    """

    def __init__(
        self, instruments: Instruments | None = None, tracer: Tracer | None = None
    ) -> None:
        self.instruments = instruments or Instruments()
        self._tracer = tracer

    def operation(self, name: str, headers: Mapping[str, str]) -> Measured[OperationOutcome]:
        """A call of the contract; the caller's trace (W3C `traceparent`) is continued."""
        return Measured(
            name,
            _OF_OPERATIONS,
            lambda outcome, seconds: self.instruments.operation(name, outcome, seconds),
            tracer=self._tracer,
            parent=_W3C.extract(headers) if _PARENT in headers else None,
            kind=SpanKind.SERVER,
        )

    def work(self, kind: str) -> Measured[WorkOutcome]:
        """One attempt at background work."""
        return Measured(
            kind,
            _OF_WORK,
            lambda outcome, seconds: self.instruments.worked(kind, outcome, seconds),
            tracer=self._tracer,
        )

    def part(self, name: str) -> Measured[OperationOutcome]:
        """A part of an operation that has a span of its own and no metric."""
        return Measured(name, _OF_OPERATIONS, _nothing, tracer=self._tracer)


def _nothing(_outcome: OperationOutcome, _seconds: float) -> None:
    """A part's time is in its span."""
