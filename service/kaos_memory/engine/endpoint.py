"""One OpenAI-compatible endpoint: a JSON request, a bounded answer, or a reason why not.

httpx and not the `openai` library: two calls are needed, its import takes 26 MB and 0.6 s, and
its retries, environment variables and lenient parsing would have to be switched off again.
"""

import asyncio
import math
import ssl
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import cache
from typing import Any

import httpx
import orjson

from kaos_memory.engine.protocols import ModelError, ModelUnavailable
from kaos_memory.settings import Model, SettingsError

_CONNECT_SECONDS = 5.0
_ABOUT_THE_REQUEST = {400, 413, 415, 422}
"""Statuses that say something about what was asked, and nothing about the endpoint."""

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
    """An endpoint with its own connections. Nothing is retried here: workers do that."""

    def __init__(self, role: str, model: Model, *, seconds: float, most_bytes: int) -> None:
        key = model.api_key.get_secret_value().strip()
        if not (key.isascii() and key.isprintable()):
            raise SettingsError(
                [f"models.{role}.api_key must hold printable ASCII only; correct it"]
            )
        self._role = role
        self._seconds = seconds
        self._most_bytes = most_bytes
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
        """The body of a 200 answer.

        Raises:
            ModelError: no connection, no answer in time, another status, or too long an answer.
        """
        try:
            async with asyncio.timeout(self._seconds):
                return await self._answer(path, orjson.dumps(body))
        except (TimeoutError, httpx.TimeoutException):
            raise self._unavailable(f"did not answer within {self._seconds:g} s") from None
        except httpx.HTTPError as error:
            # Only the type: messages may quote a header, and so the key.
            raise self._unavailable(f"could not be reached ({type(error).__name__})") from None

    async def _answer(self, path: str, content: bytes) -> bytes:
        request = self._client.stream(
            "POST", path, content=content, headers={"content-type": "application/json"}
        )
        async with request as response:
            received = bytearray()
            async for chunk in response.aiter_bytes():
                received += chunk
                if len(received) > self._most_bytes:
                    raise self.error(f"answered with more than {self._most_bytes} bytes")
            if response.status_code != 200:
                code = _known_code(bytes(received))
                what = f"answered {response.status_code}" + (f" ({code})" if code else "")
                if response.status_code in _ABOUT_THE_REQUEST:
                    raise self.error(what)
                raise self._unavailable(what, _retry_after(response.headers.get("retry-after")))
            return bytes(received)

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
