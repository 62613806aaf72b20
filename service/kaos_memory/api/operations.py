"""The operations of the contract as routes: a body in, an answer out, under the same rules for all.

They are mounted as plain routes: FastAPI's own reading of bodies and dependencies took a third of
the service's time for a request. What they would add to the OpenAPI document is added here.
"""

import json
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from inspect import isawaitable
from typing import Any

from fastapi import FastAPI
from fastapi.responses import Response
from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic.json_schema import models_json_schema
from starlette.requests import Request

from kaos_memory.api import observed
from kaos_memory.api.limits import Places
from kaos_memory.api.problems import InvalidRequest
from kaos_memory.contract import Id, Message
from kaos_memory.identity.caller import Caller
from kaos_memory.telemetry.spans import Telemetry

_PREFIX = "/v1/"
_ACTOR_HEADER = "x-actor"
_ACTOR = TypeAdapter[str | None](Id)
_MOST_FINDINGS = 50
_STATUSES = {
    "400": "The scope lacks the identity that its level is about",
    "403": "The caller may not do this",
    "413": "The body is too large",
    "422": "A field breaks a bound; the answer names it",
    "503": "The service cannot work now; try again after the wait",
}
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Operation:
    """One call of the contract."""

    path: str
    summary: str
    body: type[Message]
    answer: type[Message]
    run: Callable[[Any, Caller], Awaitable[Response]]
    """Gets the validated body and who calls."""

    @property
    def name(self) -> str:
        """Its name in metrics and spans."""
        return self.path.removeprefix(_PREFIX).replace("/", ".")


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
        app.add_route(operation.path, endpoint, methods=["POST"])
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
                async with places.held():
                    body = _parsed(operation.body, content)
                    observed.asked(body, running)
                    response = await operation.run(body, _caller(request))
            except Exception as error:  # noqa: BLE001 - answered, and logged if it is a crash
                response = await _problem(app, request, error)
                observed.refused(error, response.status_code, name, running, instruments)
            else:
                if isinstance(response, _Answer):
                    observed.answered(response.message, running, instruments)
            return response

    return endpoint


async def _problem(app: FastAPI, request: Request, error: Exception) -> Response:
    """The answer of the handler that is installed for an exception; the last one is for crashes."""
    kind = next(kind for kind in type(error).__mro__ if kind in app.exception_handlers)
    if kind is Exception:
        _log.exception("request_crashed")
    response = app.exception_handlers[kind](request, error)
    return await response if isawaitable(response) else response


def _parsed(body: type[Message], content: bytes) -> Message:
    try:
        return body.model_validate_json(content)
    except ValidationError as error:
        findings = _findings(error)
    if findings[0]["type"] == "json_invalid":
        # Python's parser takes lone surrogates, so that the field that has them can be named.
        try:
            return body.model_validate(json.loads(content))
        except ValidationError as error:
            findings = _findings(error)
        except (ValueError, RecursionError):
            pass
    raise InvalidRequest(findings)


def _findings(error: ValidationError) -> Sequence[Mapping[str, Any]]:
    """What pydantic found; of very many findings only how many, which takes no time to say."""
    if error.error_count() <= _MOST_FINDINGS:
        return error.errors(include_url=False)
    message = f"has {error.error_count()} fields that are unknown or break rules"
    return [{"type": "value_error", "loc": ("body",), "msg": message, "input": None}]


def _caller(request: Request) -> Caller:
    actors = request.headers.getlist(_ACTOR_HEADER)
    if not actors:
        return Caller()
    actor = actors[0]
    if len(actors) > 1 or not actor.strip():
        # Blank or ambiguous must not pass for a request without an actor, which is an admin's.
        message = "must name one agent; leave the header out where none acts"
        raise InvalidRequest([{"type": "value_error", "loc": (_ACTOR_HEADER,), "msg": message}])
    try:
        return Caller(actor=_ACTOR.validate_python(actor))
    except ValidationError as error:
        findings = error.errors(include_url=False)
        raise InvalidRequest(
            [finding | {"loc": (_ACTOR_HEADER,)} for finding in findings]
        ) from None


def _describe(document: dict[str, Any], operations: Sequence[Operation]) -> None:
    bodies = [(operation.body, "validation") for operation in operations]
    answers = [(operation.answer, "serialization") for operation in operations]
    _, schemas = models_json_schema(
        [*bodies, *answers],  # type: ignore[list-item]
        ref_template="#/components/schemas/{model}",
    )
    components = document.setdefault("components", {}).setdefault("schemas", {})
    components.update(schemas.get("$defs", {}))
    for operation in operations:
        reference = f"#/components/schemas/{operation.answer.__name__}"
        shown = {"application/json": {"schema": {"$ref": reference}}}
        refusals = {status: {"description": text} for status, text in _STATUSES.items()}
        responses = {"200": {"description": "Done", "content": shown}, **refusals}
        body = f"#/components/schemas/{operation.body.__name__}"
        document["paths"][operation.path] = {
            "post": {
                "summary": operation.summary,
                "requestBody": {
                    "required": True,
                    "content": {"application/json": {"schema": {"$ref": body}}},
                },
                "parameters": [
                    {"name": _ACTOR_HEADER, "in": "header", "schema": {"type": "string"}}
                ],
                "responses": responses,
            }
        }
