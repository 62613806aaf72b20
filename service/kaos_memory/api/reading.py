"""What a request says: its body or its parameters, who calls, and how it names its write."""

import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import StringConstraints, TypeAdapter, ValidationError
from starlette.requests import Request

from kaos_memory.api.problems import InvalidRequest
from kaos_memory.contract import Id, Message
from kaos_memory.identity.caller import Caller

ACTOR_HEADER = "x-actor"
IDEMPOTENCY_HEADER = "idempotency-key"
MAX_KEY_CHARS = 200

_MOST_FINDINGS = 50
_ACTOR = TypeAdapter[str | None](Id)
_KEY = TypeAdapter[str](
    Annotated[str, StringConstraints(max_length=MAX_KEY_CHARS, pattern="^[ -~]*[!-~][ -~]*$")]
)


def body(kind: type[Message], content: bytes) -> Message:
    """A JSON body.

    Raises:
        InvalidRequest: it breaks rules.
    """
    try:
        return kind.model_validate_json(content)
    except ValidationError as error:
        findings = _findings(error)
    if findings[0]["type"] == "json_invalid":
        # Python's parser takes lone surrogates, so that the field that has them can be named.
        try:
            return kind.model_validate(json.loads(content))
        except ValidationError as error:
            findings = _findings(error)
        except (ValueError, RecursionError):
            pass
    raise InvalidRequest(findings)


def parameters(kind: type[Message], request: Request) -> Message:
    """The parameters of a path and of its query.

    Raises:
        InvalidRequest: one breaks rules, is unknown, or is given twice.
    """
    given = dict(request.path_params)
    for name, value in request.query_params.multi_items():
        if name in given:
            raise InvalidRequest([_finding(name, "must be given once")])
        given[name] = value
    try:
        return kind.model_validate(given)
    except ValidationError as error:
        raise InvalidRequest(_findings(error)) from None


def caller(request: Request) -> Caller:
    """Who calls, as far as the request says.

    Raises:
        InvalidRequest: the actor is no id, or there are several.
    """
    actors = request.headers.getlist(ACTOR_HEADER)
    if not actors:
        return Caller()
    actor = actors[0]
    if len(actors) > 1 or not actor.strip():
        # Blank or ambiguous must not pass for a request without an actor, which is an admin's.
        message = "must name one agent; leave the header out where none acts"
        raise InvalidRequest([_finding(ACTOR_HEADER, message)])
    try:
        return Caller(actor=_ACTOR.validate_python(actor))
    except ValidationError as error:
        raise InvalidRequest(_of_header(ACTOR_HEADER, error)) from None


def idempotency_key(request: Request) -> str | None:
    """What the caller calls its write, or None.

    Raises:
        InvalidRequest: it is out of its bounds, or there are several.
    """
    keys = request.headers.getlist(IDEMPOTENCY_HEADER)
    if not keys:
        return None
    if len(keys) > 1:
        raise InvalidRequest([_finding(IDEMPOTENCY_HEADER, "must be given once")])
    try:
        return _KEY.validate_python(keys[0])
    except ValidationError:
        message = (
            f"must have 1 to {MAX_KEY_CHARS} printable ASCII characters, not all of them space"
        )
        raise InvalidRequest([_finding(IDEMPOTENCY_HEADER, message, keys[0])]) from None


def _finding(field: str, message: str, given: object = None) -> Mapping[str, Any]:
    return {"type": "value_error", "loc": (field,), "msg": message, "input": given}


def _of_header(header: str, error: ValidationError) -> Sequence[Mapping[str, Any]]:
    return [finding | {"loc": (header,)} for finding in error.errors(include_url=False)]


def _findings(error: ValidationError) -> Sequence[Mapping[str, Any]]:
    """What pydantic found; of very many findings only how many, which takes no time to say."""
    if error.error_count() <= _MOST_FINDINGS:
        return error.errors(include_url=False)
    message = f"has {error.error_count()} fields that are unknown or break rules"
    return [{"type": "value_error", "loc": ("body",), "msg": message, "input": None}]
