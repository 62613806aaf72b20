"""How much one request, and all of them together, may take."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kaos_memory.api.problems import Overloaded, problem, unavailable
from kaos_memory.contract import MAX_BODY_BYTES

WAIT_SECONDS = 4.0
"""How long a request waits for a place. Clients give up on a recall after 5 seconds."""

BODY_SECONDS = 20.0
"""How long a body may take to arrive."""

MAX_HELD_BYTES = 64 * MAX_BODY_BYTES
"""What the bodies of all requests together may take in memory."""


class Places:
    """The requests in work at once; more wait, and then are refused.

    Reads, which may wait for models, and changes have places of their own: a model that hangs
    keeps nothing from being stored or erased.

    Args:
        count: How many of each of the two kinds.
    """

    def __init__(self, count: int) -> None:
        self._reads = asyncio.Semaphore(count)
        self._changes = asyncio.Semaphore(count)
        self.waiting = 0
        """Requests that wait for a place now."""
        self.in_work = 0
        """Requests that have one."""

    @asynccontextmanager
    async def held(self, *, changes: bool) -> AsyncGenerator[None]:
        """Hold a place while a request is in work.

        Args:
            changes: Whether the request changes memory.

        Raises:
            Overloaded: none became free in time.
        """
        free = self._changes if changes else self._reads
        if free.locked():
            self.waiting += 1
            try:
                async with asyncio.timeout(WAIT_SECONDS):
                    await free.acquire()
            except TimeoutError:
                raise Overloaded from None
            finally:
                self.waiting -= 1
        else:
            await free.acquire()  # at once, and without the cost of a timer
        self.in_work += 1
        try:
            yield
        finally:
            self.in_work -= 1
            free.release()


class BodyLimit:
    """Bounds what bodies take, one alone and all together: 413, 408 and 503.

    Args:
        app: Gets the other requests.
        refused: Is told of each one that is refused, and why in a word.
    """

    def __init__(self, app: ASGIApp, refused: Callable[[str], None] = lambda _: None) -> None:
        self._app = app
        self._refused = refused
        self._held = 0
        """Bytes of the bodies of all requests that are not answered yet."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        must_end = asyncio.get_running_loop().time() + BODY_SECONDS
        received, complete = 0, False

        async def limited() -> Message:
            nonlocal received, complete
            if complete:
                return await receive()
            try:
                async with asyncio.timeout_at(must_end):
                    message = await receive()
            except TimeoutError:
                raise _Refused("late", _late()) from None
            size = len(message.get("body", b""))
            received += size
            self._held += size
            complete = not message.get("more_body", False)
            if received > MAX_BODY_BYTES:
                raise _Refused("too_large", _too_large())
            if self._held > MAX_HELD_BYTES:
                raise _Refused("too_many", _too_many())
            return message

        try:
            _refuse_declared(scope)
            await self._app(scope, limited, send)
        except _Refused as refusal:
            # Operations read the whole body before they answer, so nothing was sent yet.
            self._refused(refusal.reason)
            await refusal.answer(scope, receive, send)
        finally:
            self._held -= received


class _Refused(Exception):
    """A body goes over a bound."""

    def __init__(self, reason: str, answer: Response) -> None:
        self.reason = reason
        self.answer = answer
        super().__init__(reason)


def _refuse_declared(scope: Scope) -> None:
    """Refuse a body that says itself that it is too large."""
    declared = next((v for k, v in scope["headers"] if k == b"content-length"), b"0")
    if declared.isdigit() and int(declared) > MAX_BODY_BYTES:
        raise _Refused("too_large", _too_large())


def _too_large() -> Response:
    detail = f"the body has more than {MAX_BODY_BYTES} bytes; send fewer or shorter turns at once"
    return problem(413, "Content Too Large", detail)


def _late() -> Response:
    detail = f"the body did not arrive within {BODY_SECONDS:g} seconds; send it again at once"
    # The rest may still come, and is not the next request.
    return problem(408, "Request Timeout", detail, headers={"Connection": "close"})


def _too_many() -> Response:
    return unavailable("too many large requests are in work; this one changed nothing")
