"""The operations of the contract as routes: a message in, an answer out, the same rules for all.

They are mounted as plain routes: FastAPI's own reading of bodies and dependencies took a third of
the service's time for a request. What they would add to the OpenAPI document is added here.
"""

import logging
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from inspect import isawaitable
from typing import Any

from fastapi import FastAPI
from fastapi.responses import Response
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema
from starlette.requests import Request

from kaos_memory.api import observed, reading
from kaos_memory.api.limits import Places
from kaos_memory.api.problems import PROBLEM_TYPE, Problem, Refusal
from kaos_memory.contract import Message
from kaos_memory.identity.caller import Caller
from kaos_memory.telemetry.spans import Telemetry

_PREFIX = "/v1/"
_IN_BRACES = re.compile(r"{(\w+)}")
_REFERENCE = "#/components/schemas/"
_REFUSALS: Mapping[str, tuple[str, type[BaseModel]]] = {
    "400": ("The scope lacks the identity that its level is about", Refusal),
    "403": ("The caller may not do this", Refusal),
    "404": ("It is not there, or not the caller's", Problem),
    "408": ("The body did not arrive in time", Problem),
    "409": ("The idempotency key was used for another write", Problem),
    "413": ("The body is too large", Problem),
    "422": ("A field breaks a bound; the answer names it", Problem),
    "503": ("The service cannot work now; try again after the wait", Problem),
}
_WAIT = {"Retry-After": {"required": True, "schema": {"type": "integer"}}}
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Call:
    """What a request says beside its message."""

    caller: Caller
    idempotency_key: str | None = None


@dataclass(frozen=True)
class Operation:
    """One call of the contract."""

    path: str
    summary: str
    request: type[Message]
    """The body of a POST; otherwise the parameters of the path and of the query."""
    answer: type[Message]
    run: Callable[[Any, Call], Awaitable[Response]]
    """Gets the validated message, and who calls."""
    method: str = "POST"
    idempotent: bool = False
    """Whether it heeds the header `Idempotency-Key`."""
    changes: bool = False
    """Whether it changes memory: such requests have places of their own."""
    schedules: bool = False
    """Whether it answers 202 where background work is due with it."""

    @property
    def name(self) -> str:
        """Its name in metrics and spans."""
        named = self.path.removeprefix(_PREFIX).partition("/{")[0].replace("/", ".")
        return named if self.method == "POST" else f"{named}.{self.method.lower()}"

    @property
    def path_parameters(self) -> set[str]:
        """The fields of its request that are parts of the path."""
        return set(_IN_BRACES.findall(self.path))


class _Answer(Response):
    """A response whose message can still be looked at."""

    def __init__(self, message: BaseModel, status: int) -> None:
        self.message = message
        content = message.model_dump_json(exclude_none=True)
        super().__init__(content, status, media_type="application/json")


def mount(
    app: FastAPI,
    operations: Sequence[Operation],
    places: Places,
    telemetry: Telemetry | None = None,
) -> None:
    """Add the operations as routes, and to the OpenAPI document."""
    telemetry = telemetry or Telemetry()
    telemetry.instruments.requests = places
    for operation in operations:
        endpoint = _endpoint(app, operation, places, telemetry)
        app.add_route(operation.path, endpoint, methods=[operation.method])
    document = app.openapi

    def with_operations() -> dict[str, Any]:
        if app.openapi_schema is None:
            _describe(document(), operations)
        return document()

    app.openapi = with_operations


def answer(body: BaseModel, status: int = 200) -> Response:
    """A body as the wire shows it: what is absent is left out."""
    return _Answer(body, status)


def _endpoint(
    app: FastAPI, operation: Operation, places: Places, telemetry: Telemetry
) -> Callable[[Request], Awaitable[Response]]:
    name, instruments = operation.name, telemetry.instruments

    async def endpoint(request: Request) -> Response:
        # Read before a place is taken: a slow sender holds up nobody else.
        content = await request.body()
        with telemetry.operation(name, request.headers) as running:
            try:
                async with places.held(changes=operation.changes):
                    message, call = _read(operation, request, content)
                    observed.asked(message, running)
                    response = await operation.run(message, call)
            except Exception as error:  # noqa: BLE001 - answered, and logged if it is a crash
                response = await _problem(app, request, error)
                observed.refused(error, response.status_code, name, running, instruments)
            else:
                if isinstance(response, _Answer):
                    observed.answered(response.message, running, instruments)
            return response

    return endpoint


def _read(operation: Operation, request: Request, content: bytes) -> tuple[Message, Call]:
    if operation.method == "POST":
        message = reading.body(operation.request, content)
    else:
        message = reading.parameters(operation.request, request)
    key = reading.idempotency_key(request) if operation.idempotent else None
    return message, Call(reading.caller(request), key)


async def _problem(app: FastAPI, request: Request, error: Exception) -> Response:
    """The answer of the handler that is installed for an exception; the last one is for crashes."""
    kind = next(kind for kind in type(error).__mro__ if kind in app.exception_handlers)
    if kind is Exception:
        _log.exception("request_crashed")
    response = app.exception_handlers[kind](request, error)
    return await response if isawaitable(response) else response


def _describe(document: dict[str, Any], operations: Sequence[Operation]) -> None:
    requests = [(operation.request, "validation") for operation in operations]
    shown = {operation.answer for operation in operations} | {Problem, Refusal}
    answers = [(kind, "serialization") for kind in sorted(shown, key=lambda kind: kind.__name__)]
    _, schemas = models_json_schema(
        [*requests, *answers],  # type: ignore[list-item]
        ref_template=_REFERENCE + "{model}",
    )
    components = document.setdefault("components", {}).setdefault("schemas", {})
    components.update(schemas.get("$defs", {}))
    for operation in operations:
        described = document["paths"].setdefault(operation.path, {})
        described[operation.method.lower()] = _described(operation, components)


def _described(operation: Operation, schemas: Mapping[str, Any]) -> dict[str, Any]:
    headers = [reading.ACTOR_HEADER]
    if operation.idempotent:
        headers.append(reading.IDEMPOTENCY_HEADER)
    parameters: list[dict[str, Any]] = [
        {"name": name, "in": "header", "schema": {"type": "string"}} for name in headers
    ]
    described: dict[str, Any] = {
        "summary": operation.summary,
        "responses": _responses(operation),
        "parameters": parameters,
    }
    if operation.method == "POST":
        described["requestBody"] = {"required": True, "content": _json_of(operation.request)}
        return described
    request = schemas[operation.request.__name__]
    for name, schema in request["properties"].items():
        in_path = name in operation.path_parameters
        place = "path" if in_path else "query"
        parameters.append({"name": name, "in": place, "required": in_path, "schema": schema})
    return described


def _responses(operation: Operation) -> dict[str, Any]:
    done = {"content": _json_of(operation.answer)}
    responses: dict[str, Any] = {"200": {"description": "Done", **done}}
    if operation.schedules:
        responses["202"] = {"description": "Done, and background work is due with it", **done}
    impossible = set[str]()
    if not operation.path_parameters:
        impossible.add("404")
    if not operation.idempotent:
        impossible.add("409")
    for status in _REFUSALS.keys() - impossible:
        description, body = _REFUSALS[status]
        responses[status] = {"description": description, "content": _json_of(body)}
    responses["503"]["headers"] = _WAIT
    return dict(sorted(responses.items()))


def _json_of(message: type[BaseModel]) -> dict[str, Any]:
    media_type = PROBLEM_TYPE if message is Problem else "application/json"
    return {media_type: {"schema": {"$ref": _REFERENCE + message.__name__}}}
