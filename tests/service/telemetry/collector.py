"""A collector that takes OTLP over HTTP."""

from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread


class Collector(ThreadingHTTPServer):
    """Keeps what it is sent; hangs while `go_on` is not set."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.received: list[tuple[str, bytes]] = []
        self.go_on = Event()
        self.go_on.set()
        self.url = f"http://127.0.0.1:{self.server_address[1]}"

    @classmethod
    @contextmanager
    def running(cls) -> Generator["Collector"]:
        """A collector that answers until the context ends."""
        with cls() as server:
            thread = Thread(target=server.serve_forever, args=(0.02,))
            thread.start()
            try:
                yield server
            finally:
                server.go_on.set()
                server.shutdown()
                thread.join()


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        assert isinstance(self.server, Collector)
        body = self.rfile.read(int(self.headers["content-length"]))
        self.server.received.append((self.path, body))
        self.server.go_on.wait(20)
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base's name
        """Quiet."""
