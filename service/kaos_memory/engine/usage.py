"""What calls of models took: time, tokens, and how they ended. No content."""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice
from typing import Any

_BYTES_PER_TOKEN = 4
_MOST_USAGE_BYTES = 4_096
_MOST_KEYS = 4
_MOST_TOKENS = 10_000_000
"""More than any model reads in one call: what is above is a mistake of the endpoint's."""

_USAGE = re.compile(rb'"usage"\s*:\s*(?=\{)')
"""The key. Inside a JSON string its quotes would be escaped, so no content passes for it."""


class CallOutcome(StrEnum):
    """How a call of a model ended."""

    OK = "ok"
    REFUSED = "refused"
    """The endpoint said that this request is wrong."""
    UNAVAILABLE = "unavailable"
    """Not reached, overloaded, or failing whatever it is asked."""
    LATE = "late"
    UNUSABLE = "unusable"
    """It answered, and the answer is not what was asked for."""
    CANCELLED = "cancelled"
    """Whoever asked has gone."""


@dataclass(frozen=True)
class ModelCall:
    """One call that ended."""

    role: str
    """The group of `models.*` in the settings that names the model."""
    outcome: CallOutcome
    seconds: float
    tokens: int
    """Read and written by the model; 0 where it did not answer."""


CallListener = Callable[[ModelCall], None]
"""Is told of each call. It must be quick and must not raise."""


class TokenMeter:
    """Sums up the tokens of the calls that it is told of, to be charged to a budget."""

    def __init__(self) -> None:
        self._tokens = 0

    def heard(self, call: ModelCall) -> None:
        """Add a call's tokens: a `CallListener`."""
        self.add(call.tokens)

    def add(self, tokens: int) -> None:
        """Add tokens that a model has read or written."""
        self._tokens += tokens

    def take(self) -> int:
        """The tokens since they were last taken."""
        taken, self._tokens = self._tokens, 0
        return taken


def tokens_of(answer: bytes, *, text_bytes: int) -> int:
    """The tokens of a call: `usage.total_tokens` of its answer, else an estimate.

    Args:
        answer: The body of the answer.
        text_bytes: What the model read and wrote, in bytes: four of them are about a token.
    """
    told = _told(answer)
    return text_bytes // _BYTES_PER_TOKEN if told is None else told


def _told(answer: bytes) -> int | None:
    """Without parsing the whole answer again: the vectors of a batch take megabytes."""
    for key in islice(_USAGE.finditer(answer), _MOST_KEYS):
        text = answer[key.end() : key.end() + _MOST_USAGE_BYTES].decode(errors="replace")
        try:
            usage: dict[str, Any] = json.JSONDecoder().raw_decode(text)[0]
        except (ValueError, RecursionError):
            continue
        total = usage.get("total_tokens")
        if isinstance(total, int) and not isinstance(total, bool) and 0 < total <= _MOST_TOKENS:
            return total
    return None
