"""Errors as callers see them: what is wrong, where, and what to do. Never a driver's text."""

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any, Literal

from fastapi import FastAPI, Request
from fastapi.responses import Response
from pydantic import BaseModel
from starlette.exceptions import HTTPException

from kaos_memory.authorization.decide import (
    Denied,
    Incomplete,
    MissingSession,
    WiderThanSession,
)
from kaos_memory.memory import NotThere
from kaos_memory.storage.protocol import IdempotencyConflict, InvalidCursor, StorageUnavailable

RETRY_AFTER_SECONDS = 2
"""What callers are told to wait when the service cannot work now."""


PROBLEM_TYPE = "application/problem+json"


class FieldProblem(BaseModel):
    """A field that breaks a rule."""

    field: str
    message: str


class Problem(BaseModel):
    """The body of an error (RFC 9457)."""

    type: Literal["about:blank"] = "about:blank"
    title: str
    status: int
    detail: str
    errors: list[FieldProblem] | None = None


class Refusal(BaseModel):
    """The body of a refusal: why, and that a write or an erasure did not happen."""

    accepted: Literal[False] | None = None
    forgotten: Literal[False] | None = None
    error: str


class InvalidRequest(Exception):
    """Fields that break rules, as pydantic finds them."""

    def __init__(self, findings: Sequence[Mapping[str, Any]]) -> None:
        self.findings = findings
        super().__init__()


class Overloaded(Exception):
    """All places for requests stayed taken until this one's deadline."""


def problem(
    status: int,
    title: str,
    detail: str,
    *,
    errors: Sequence[FieldProblem] = (),
    headers: Mapping[str, str] | None = None,
) -> Response:
    """An `application/problem+json` answer."""
    body = Problem(title=title, status=status, detail=detail, errors=list(errors) or None)
    return _shown(body, status, PROBLEM_TYPE, headers)


def _shown(
    body: BaseModel, status: int, media_type: str, headers: Mapping[str, str] | None = None
) -> Response:
    content = body.model_dump_json(exclude_none=True)
    return Response(content, status, headers=headers, media_type=media_type)


def invalid(findings: Sequence[Mapping[str, Any]]) -> Response:
    """422 with each field that breaks a bound; what was sent is not repeated."""
    errors = [
        FieldProblem(field=_field(finding), message=_sentence(finding)) for finding in findings[:20]
    ]
    detail = "; ".join(f"{each.field}: {each.message}" for each in errors[:5])
    return problem(422, "Unprocessable Content", detail, errors=errors)


def _field(finding: Mapping[str, Any]) -> str:
    """The path of a field. Names come from the caller: clipped, and safe to encode."""
    if finding["type"] == "json_invalid":
        return "body"
    path = ".".join(str(part) for part in finding["loc"] if part != "body") or "body"
    return path[:200].encode(errors="replace").decode()


def _sentence(finding: Mapping[str, Any]) -> str:
    message = str(finding["msg"]).removeprefix("Value error, ")
    kind = finding["type"]
    if kind in {"json_invalid", "extra_forbidden", "missing"}:
        return message
    return f"{message} (given: {_kind(finding.get('input'))})"


def _kind(value: object) -> str:
    if isinstance(value, str):
        return f"a string of {len(value)} characters"
    if isinstance(value, (list, dict)):
        return f"a {'list' if isinstance(value, list) else 'object'} of {len(value)} entries"
    if value is None or isinstance(value, (bool, int, float)):
        return str(value)[:40]
    return type(value).__name__


def install(app: FastAPI) -> None:
    """Map what the inner layers raise onto answers."""
    for kind, handler in _HANDLERS.items():
        app.add_exception_handler(kind, handler)


def field_problem(field: str, message: str) -> Response:
    """422 about one field."""
    errors = [FieldProblem(field=field, message=message)]
    return problem(422, "Unprocessable Content", f"{field}: {message}", errors=errors)


def unavailable(detail: str) -> Response:
    """503 with the wait that callers should keep to."""
    headers = {"Retry-After": str(RETRY_AFTER_SECONDS)}
    return problem(503, "Service Unavailable", detail, headers=headers)


async def _on_invalid(_request: Request, error: Exception) -> Response:
    return invalid(getattr(error, "findings", ()))


async def _on_http(_request: Request, error: Exception) -> Response:
    status = getattr(error, "status_code", 500)
    title = HTTPStatus(status).phrase
    return problem(status, title, title, headers=getattr(error, "headers", None))


async def _on_crash(_request: Request, _error: Exception) -> Response:
    return problem(500, "Internal Server Error", "the service failed; its log says where")


async def _on_denied(request: Request, error: Exception) -> Response:
    return _refused(request, error, 403)


async def _on_incomplete(request: Request, error: Exception) -> Response:
    return _refused(request, error, 400)


async def _on_missing_session(_request: Request, _error: Exception) -> Response:
    return field_problem("attribution.session_id", "must name the session of the turns")


async def _on_wider(_request: Request, _error: Exception) -> Response:
    return field_problem("scope.level", "must be session: one session is closed at a time")


async def _on_cursor(_request: Request, _error: Exception) -> Response:
    return field_problem("cursor", "is not one that a page returned; leave it out to begin")


async def _on_not_there(_request: Request, error: Exception) -> Response:
    return problem(404, "Not Found", f"there is no such {error}, or it is out of your reach")


async def _on_conflict(_request: Request, _error: Exception) -> Response:
    detail = (
        "Idempotency-Key: was used for another write; send that one again unchanged, or give this "
        "one a key of its own"
    )
    return problem(409, "Conflict", detail)


async def _on_unavailable(_request: Request, _error: Exception) -> Response:
    return unavailable("the storage does not answer; try again after the wait")


async def _on_overloaded(_request: Request, _error: Exception) -> Response:
    return unavailable("too many requests are in work; this one changed nothing")


_HANDLERS = {
    InvalidRequest: _on_invalid,
    HTTPException: _on_http,
    Denied: _on_denied,
    Incomplete: _on_incomplete,
    MissingSession: _on_missing_session,
    WiderThanSession: _on_wider,
    InvalidCursor: _on_cursor,
    NotThere: _on_not_there,
    IdempotencyConflict: _on_conflict,
    StorageUnavailable: _on_unavailable,
    Overloaded: _on_overloaded,
    Exception: _on_crash,
}


def _refused(request: Request, error: Exception, status: int) -> Response:
    """The seeds' refusals of writes and erasures say in their own words that nothing happened."""
    body = Refusal(error=str(error))
    if request.url.path == "/v1/write":
        body.accepted = False
    if request.url.path == "/v1/forget":
        body.forgotten = False
    return _shown(body, status, "application/json")
