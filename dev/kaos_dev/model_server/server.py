"""The model server on a thread of this process, for tests and the demo."""

import secrets
import socket
import threading
from types import TracebackType
from typing import Final, Self

import uvicorn

from kaos_dev.model_server.app import ServerState, create_app
from kaos_dev.model_server.script import Behaviour, Recorder

_STOP_SECONDS: Final = 5


class ModelServer:
    """A deterministic OpenAI-compatible server on a loopback port.

        with ModelServer() as models:
            client = openai.OpenAI(base_url=models.url, api_key=models.api_key)

    `requests` records what the models saw; `script` makes the next calls fail.
    """

    def __init__(
        self, api_key: str | None = None, *, host: str = "127.0.0.1", port: int = 0
    ) -> None:
        self.api_key = api_key or f"sk-{secrets.token_hex(16)}"
        self._host = host
        self._port = port
        self._state = ServerState(self.api_key)
        self._ready = threading.Event()
        self._server: uvicorn.Server | None = None
        self._thread: threading.Thread | None = None

    @property
    def url(self) -> str:
        """The base URL for OpenAI clients, with its `/v1`."""
        return f"http://{self._host}:{self._port}/v1"

    @property
    def requests(self) -> Recorder:
        """The requests so far."""
        return self._state.recorder

    def script(self, *behaviours: Behaviour) -> None:
        """Append to what the next calls meet."""
        self._state.script.add(*behaviours)

    def release(self) -> None:
        """Let go the calls that hang now."""
        self._state.gate.release()

    def reset(self) -> None:
        """Forget script and requests, and release what hangs: as new for the next test."""
        self._state.script.clear()
        self._state.gate.release()
        self._state.recorder.clear()

    def start(self) -> None:
        """Start to serve; returns when it does."""
        # Listening before the server runs: no request can come too early.
        listener = socket.create_server((self._host, self._port))
        self._port = listener.getsockname()[1]
        app = create_app(self._state, on_ready=self._ready.set)
        self._server = uvicorn.Server(server_config(app))
        self._thread = threading.Thread(
            target=self._server.run, kwargs={"sockets": [listener]}, name="model-server"
        )
        self._thread.start()
        if not self._ready.wait(_STOP_SECONDS):
            self.stop()
            raise TimeoutError("the model server did not start")

    def stop(self) -> None:
        """Stop to serve; calls that hang are released."""
        if self._server is None or self._thread is None:
            return
        self._state.script.clear()
        self._state.gate.release()
        self._server.should_exit = True
        self._thread.join()
        self._server = self._thread = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        exception_type: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()


def server_config(app: object) -> uvicorn.Config:
    """Return how the application is served: quietly, and never waiting long for a hung call."""
    return uvicorn.Config(
        app,  # pyright: ignore[reportArgumentType] -- uvicorn's alias of an ASGI app is too narrow
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=_STOP_SECONDS,
    )
