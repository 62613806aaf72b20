"""How much one request, and all of them together, may take."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kaos_memory.api.problems import Overloaded, problem
from kaos_memory.contract import MAX_BODY_BYTES

WAIT_SECONDS = 4.0
"""How long a request waits for a place. Clients give up on a recall after 5 seconds."""


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
    """Refuses bodies over the bound with 413, by their declared length or as they arrive.

    Args:
        app: Gets the other requests.
        refused: Is told of each one that is refused.
    """

    def __init__(self, app: ASGIApp, refused: Callable[[], None] = lambda: None) -> None:
        self._app = app
        self._refused = refused

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        declared = next((v for k, v in scope["headers"] if k == b"content-length"), b"0")
        if declared.isdigit() and int(declared) > MAX_BODY_BYTES:
            await self._too_large(scope, receive, send)
            return
        received = 0

        async def limited() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > MAX_BODY_BYTES:
                raise _TooLarge
            return message

        try:
            await self._app(scope, limited, send)
        except _TooLarge:
            # Operations read the whole body before they answer, so nothing was sent yet.
            await self._too_large(scope, receive, send)

    async def _too_large(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._refused()
        detail = (
            f"the body has more than {MAX_BODY_BYTES} bytes; send fewer or shorter turns at once"
        )
        await problem(413, "Content Too Large", detail)(scope, receive, send)


class _TooLarge(Exception):
    """The body went over the bound while it arrived."""
