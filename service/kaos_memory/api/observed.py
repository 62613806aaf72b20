"""What operators may know of a request and its answer: counts and levels, no names, no content."""

import re
from http import HTTPStatus

from pydantic import BaseModel

from kaos_memory.contract import (
    ForgetRequest,
    ForgetResponse,
    ListRequest,
    RecallRequest,
    RecallResponse,
    WriteRequest,
)
from kaos_memory.telemetry.catalogue import OperationOutcome
from kaos_memory.telemetry.instruments import Instruments
from kaos_memory.telemetry.spans import Measured

_DENIALS = {HTTPStatus.BAD_REQUEST, HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}
_WORD = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def asked(body: BaseModel, running: Measured[OperationOutcome]) -> None:
    """Note what a request asks for."""
    if not running.recording:
        return
    if isinstance(body, RecallRequest | ListRequest):
        running.note(scope__level=body.scope.level.value, tiers=[t.value for t in body.include])
    elif isinstance(body, ForgetRequest):
        running.note(scope__level=body.scope.level.value, dry_run=body.dry_run)
    elif isinstance(body, WriteRequest):
        running.note(turns=len(body.all_turns()))


def answered(
    body: BaseModel, running: Measured[OperationOutcome], instruments: Instruments
) -> None:
    """Note and count what an answer holds."""
    degraded = bool(getattr(body, "degraded", False))
    if degraded:
        running.outcome = OperationOutcome.DEGRADED
    if isinstance(body, ForgetResponse) and body.forgotten and body.receipt is not None:
        receipt = body.receipt
        instruments.erased(
            receipt.level.value,
            {
                "turns": receipt.turns,
                "digests": receipt.digests,
                "facts": receipt.facts,
                "sessions": receipt.sessions,
            },
        )
    if not running.recording:
        return
    running.note(degraded=degraded)
    if isinstance(body, RecallResponse):
        running.note(
            turns=None if body.short_term is None else len(body.short_term.window),
            facts=None if body.long_term is None else len(body.long_term.facts),
            digest=None if body.medium_term is None else bool(body.medium_term.summary),
        )


def refused(
    error: Exception,
    status: int,
    operation: str,
    running: Measured[OperationOutcome],
    instruments: Instruments,
) -> None:
    """Count an exception that is answered with a status."""
    failed = status >= HTTPStatus.INTERNAL_SERVER_ERROR
    running.end_as(OperationOutcome.FAILED if failed else OperationOutcome.REFUSED, error)
    if status in _DENIALS:
        instruments.denied(operation, status, _code(error))
    elif status == 422:
        instruments.body_rejected("invalid")


def _code(error: Exception) -> str:
    """The rule that refused: the name of its exception, as `scope_too_wide`."""
    return _WORD.sub("_", type(error).__name__).lower()
