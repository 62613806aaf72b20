"""The id of a request, from its caller or made here, in the answer and in what is logged."""

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kaos_memory.telemetry import request_id

HEADER = "X-Request-Id"
_NAME = HEADER.lower().encode()


class RequestIds:
    """Gives each request an id: the caller's `X-Request-Id` if it is one short printable word."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        given = [value for name, value in scope["headers"] if name == _NAME]
        made = request_id.begin(given[0].decode("latin-1") if len(given) == 1 else None)
        header = (_NAME, made.encode())

        async def with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], header]
            await send(message)

        await self._app(scope, receive, with_id)
