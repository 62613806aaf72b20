"""One OpenAI-compatible endpoint: a JSON request, a bounded answer, or a reason why not.

httpx and not the `openai` library: two calls are needed, its import takes 26 MB and 0.6 s, and
its retries, environment variables and lenient parsing would have to be switched off again.
"""

import asyncio
import math
import ssl
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import cache
from typing import Any

import httpx
import orjson

from kaos_memory.engine.protocols import ModelError, ModelUnavailable
from kaos_memory.engine.still_wanted import still_wanted
from kaos_memory.engine.usage import CallListener, CallOutcome, ModelCall, tokens_of
from kaos_memory.settings import Model, SettingsError

_CONNECT_SECONDS = 5.0
_ABOUT_THE_REQUEST = {400, 413, 415, 422}
"""Statuses that say something about what was asked, and nothing about the endpoint."""

_ANSWERED_WITH_TEXT = {"chat/completions"}
"""Paths whose answers are tokens of a model, and not numbers."""

_KEEP_ALIVE_SECONDS = 4.0
"""Shorter than the 5 seconds after which uvicorn, and so LiteLLM, closes idle connections: one
that is closed while a request is on its way would fail that request."""

_LONGEST_RETRY_AFTER = 3_600.0

_KNOWN_CODES = frozenset(
    {
        "billing_hard_limit_reached",
        "context_length_exceeded",
        "content_filter",
        "insufficient_quota",
        "invalid_api_key",
        "model_not_found",
        "rate_limit_exceeded",
        "unsupported_parameter",
        "unsupported_value",
    }
)
"""Error codes that a reason may name. Anything else in an error's body may quote the request."""


@cache
def _trusted() -> ssl.SSLContext:
    """The trusted certificates, read once: that takes 20 ms."""
    return httpx.create_ssl_context()


class Endpoint:
    """An endpoint with its own connections. Nothing is retried here: workers do that.

    Args:
        role: The group of `models.*` in the settings that names the model.
        model: The model and where it answers.
        seconds: The deadline of a call.
        most_bytes: The longest answer that is read.
        listeners: Are told of each call that ended.
    """

    def __init__(
        self,
        role: str,
        model: Model,
        *,
        seconds: float,
        most_bytes: int,
        listeners: Sequence[CallListener] = (),
    ) -> None:
        key = model.api_key.get_secret_value().strip()
        if not (key.isascii() and key.isprintable()):
            raise SettingsError(
                [f"models.{role}.api_key must hold printable ASCII only; correct it"]
            )
        self._role = role
        self._seconds = seconds
        self._most_bytes = most_bytes
        self._listeners = tuple(listeners)
        self._client = httpx.AsyncClient(
            base_url=model.base_url,
            headers={"authorization": f"Bearer {key}"} if key else {},
            verify=_trusted(),
            timeout=httpx.Timeout(seconds, connect=min(seconds, _CONNECT_SECONDS)),
            limits=httpx.Limits(
                max_connections=100,
                max_keepalive_connections=20,
                keepalive_expiry=_KEEP_ALIVE_SECONDS,
            ),
        )

    async def aclose(self) -> None:
        """Close all connections."""
        await self._client.aclose()

    async def post(self, path: str, body: Mapping[str, Any]) -> bytes:
        """The body of a 200 answer, unread.

        Raises:
            ModelError: no connection, no answer in time, another status, or too long an answer.
        """
        async with self.call(path, body) as answer:
            return answer

    @asynccontextmanager
    async def call(self, path: str, body: Mapping[str, Any]) -> AsyncGenerator[bytes]:
        """The body of a 200 answer, to be read inside: an answer that cannot be is a failed call.

        Raises:
            ModelError: no connection, no answer in time, another status, or too long an answer.
            Exception: what the check of `still_wanted` raises; then nothing was asked.
        """
        await still_wanted()
        content = orjson.dumps(body)
        started = time.perf_counter()
        outcome, tokens = CallOutcome.UNUSABLE, 0
        try:
            try:
                async with asyncio.timeout(self._seconds):
                    response, answer = await self._exchange(path, content)
            except (TimeoutError, httpx.TimeoutException):
                outcome = CallOutcome.LATE
                raise self._unavailable(f"did not answer within {self._seconds:g} s") from None
            except httpx.HTTPError as error:
                outcome = CallOutcome.UNAVAILABLE
                # Only the type: messages may quote a header, and so the key.
                raise self._unavailable(f"could not be reached ({type(error).__name__})") from None
            if response.status_code != 200:
                refused = response.status_code in _ABOUT_THE_REQUEST
                outcome = CallOutcome.REFUSED if refused else CallOutcome.UNAVAILABLE
                raise self._not_answered(response, answer)
            written = len(answer) if path in _ANSWERED_WITH_TEXT else 0
            tokens = tokens_of(answer, text_bytes=len(content) + written)
            yield answer
            outcome = CallOutcome.OK
        except asyncio.CancelledError:
            outcome = CallOutcome.CANCELLED
            raise
        finally:
            call = ModelCall(self._role, outcome, time.perf_counter() - started, tokens)
            for listener in self._listeners:
                listener(call)

    async def _exchange(self, path: str, content: bytes) -> tuple[httpx.Response, bytes]:
        request = self._client.stream(
            "POST", path, content=content, headers={"content-type": "application/json"}
        )
        async with request as response:
            received = bytearray()
            async for chunk in response.aiter_bytes():
                received += chunk
                if len(received) > self._most_bytes:
                    raise self.error(f"answered with more than {self._most_bytes} bytes")
            return response, bytes(received)

    def _not_answered(self, response: httpx.Response, body: bytes) -> ModelError:
        code = _known_code(body)
        what = f"answered {response.status_code}" + (f" ({code})" if code else "")
        if response.status_code in _ABOUT_THE_REQUEST:
            return self.error(what)
        return self._unavailable(what, _retry_after(response.headers.get("retry-after")))

    def error(self, what: str) -> ModelError:
        """An error about an answer of this endpoint, to be raised."""
        return ModelError(f"the {self._role} endpoint {what}")

    def _unavailable(self, what: str, retry_after: float | None = None) -> ModelUnavailable:
        return ModelUnavailable(f"the {self._role} endpoint {what}", retry_after=retry_after)


def _known_code(body: bytes) -> str | None:
    try:
        error: Any = orjson.loads(body)["error"]
        found = (error[key] for key in ("code", "type") if key in error)
        return next((code for code in found if code in _KNOWN_CODES), None)
    except (ValueError, TypeError, LookupError):
        return None


def _retry_after(header: str | None) -> float | None:
    """Seconds, from a number of them or a date; None where it is neither or not ahead."""
    if header is None:
        return None
    try:
        seconds = float(header)
    except ValueError:
        try:
            until = parsedate_to_datetime(header)
        except (ValueError, OverflowError):
            return None
        if until.tzinfo is None:
            until = until.replace(tzinfo=UTC)
        seconds = (until - datetime.now(UTC)).total_seconds()
    if not (math.isfinite(seconds) and seconds > 0):
        return None
    return min(seconds, _LONGEST_RETRY_AFTER)
