"""`/metrics` on a port of its own, so that whoever reaches the store need not reach it."""

import socket
from threading import Thread

import uvicorn
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

_MOST_CONNECTIONS = 16
_CLOSE_SECONDS = 1


class MetricsServer:
    """Serves what a registry collects, in a thread with its own loop: a scrape delays no request.

    The port is bound when this is made.

    Raises:
        OSError: the address cannot be bound.
    """

    def __init__(self, host: str, port: int, registry: CollectorRegistry) -> None:
        self._socket = _bound(host, port)
        config = uvicorn.Config(
            _app(registry),
            loop="asyncio",
            lifespan="off",
            access_log=False,
            log_config=None,
            proxy_headers=False,
            server_header=False,
            limit_concurrency=_MOST_CONNECTIONS,
            timeout_graceful_shutdown=_CLOSE_SECONDS,
        )
        self._server = uvicorn.Server(config)
        self._thread = Thread(
            target=self._server.run, args=([self._socket],), name="metrics", daemon=True
        )

    @property
    def port(self) -> int:
        """The port that is bound."""
        return self._socket.getsockname()[1]

    def start(self) -> None:
        """Answer from now on."""
        self._thread.start()

    def close(self) -> None:
        """Stop answering and free the port. Takes two seconds at most."""
        self._server.should_exit = True
        if self._thread.is_alive():
            self._thread.join(2 * _CLOSE_SECONDS)
        self._socket.close()


def _bound(host: str, port: int) -> socket.socket:
    family, kind, protocol, _, address = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    bound = socket.socket(family, kind, protocol)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
        bound.listen()  # now, so that a second process fails as it starts and not later
    except OSError:
        bound.close()
        raise
    return bound


def _app(registry: CollectorRegistry) -> Starlette:
    async def metrics(request: Request) -> Response:
        encode, media_type = choose_encoder(request.headers.get("accept", ""))
        return Response(encode(registry), headers={"content-type": media_type})

    return Starlette(routes=[Route("/metrics", metrics, methods=["GET"])])
