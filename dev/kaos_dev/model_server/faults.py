"""Playing the scripted faults: delays, hanging calls, dropped connections, error answers."""

import asyncio
from typing import Final

from fastapi import Response
from fastapi.responses import JSONResponse
from starlette.types import Receive, Scope, Send

from kaos_dev.model_server.errors import error_body
from kaos_dev.model_server.script import Behaviour

_MESSAGES: Final = {
    429: "Rate limit reached. Please try again later.",
    500: "The server had an error while processing your request.",
    503: "The engine is currently overloaded, please try again later.",
}


class Gate:
    """Where scripted calls wait until somebody lets them go."""

    def __init__(self) -> None:
        self._open = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None

    def bind(self, loop: asyncio.AbstractEventLoop) -> None:
        """Name the loop that the calls wait on."""
        self._loop = loop

    async def wait(self) -> None:
        """Wait for the next release."""
        await self._open.wait()

    def release(self) -> None:
        """Let go who waits now; callable from any thread."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._release)

    def _release(self) -> None:
        opened, self._open = self._open, asyncio.Event()
        opened.set()


class DroppedConnection(Response):
    """Promises more than it sends, so that the server closes the connection."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the beginning of an answer."""
        del scope, receive
        headers = [(b"content-type", b"application/json"), (b"content-length", b"1000")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b'{"', "more_body": True})


async def play(fault: Behaviour | None, gate: Gate) -> Response | None:
    """Do what the script says; return the answer, or None when the usual one shall follow."""
    if fault is None:
        return None
    await asyncio.sleep(fault.delay_seconds)
    if fault.hang:
        await gate.wait()
    if fault.drop:
        return DroppedConnection()
    if fault.status is None:
        return None
    message = _MESSAGES.get(fault.status, "The request was refused.")
    body = error_body(message, kind="server_error") if fault.body is None else fault.body
    headers = {"retry-after": fault.retry_after} if fault.retry_after is not None else None
    return JSONResponse(body, status_code=fault.status, headers=headers)
