"""Stands in for `pulumi-language-python`, which only the released CLI carries.

The CLI built here has no language hosts beside it and no registry has this one. The engine talks
gRPC to an executable of that name; this one answers by the SDK's own server for inline programs.
That class is private: the test environment pins the SDK's version.
"""

import os
import queue
import runpy
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent import futures
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

import grpc
from google.protobuf import empty_pb2
from pulumi.automation._server import LanguageServer
from pulumi.runtime.proto import language_pb2, language_pb2_grpc

# Programs with large state exceed gRPC's 4 MB; the SDK's own limit is taken.
MAX_MESSAGE_BYTES = 400 * 1024 * 1024
READ_BYTES = 64 * 1024


def _no_program() -> None:
    """Fill the server's constructor; `Run` brings the real program."""


class Host(LanguageServer):
    """Runs a program's folder or file, and plugins written in Python, for the engine."""

    def __init__(self) -> None:
        super().__init__(_no_program)

    def Handshake(self, request: Any, context: Any) -> Any:  # noqa: N802, ARG002
        """Accept the engine's greeting."""
        return language_pb2.LanguageHandshakeResponse()

    def Run(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Run the program as `python <folder>` would."""
        folder = request.info.program_directory
        entry = request.info.entry_point
        path = folder if entry in {"", "."} else str(Path(folder) / entry)
        os.chdir(request.pwd)
        sys.path.insert(0, folder)

        def program() -> None:
            runpy.run_path(path, run_name="__main__")

        self.program = program
        return super().Run(request, context)

    def GetProgramDependencies(self, request: Any, context: Any) -> Any:  # noqa: N802, ARG002
        """Name no dependencies: the engine only shows them."""
        return language_pb2.GetProgramDependenciesResponse()

    def InstallDependencies(self, request: Any, context: Any) -> Iterator[Any]:  # noqa: N802, ARG002
        """Install nothing: the environment that runs this host has everything."""
        yield language_pb2.InstallDependenciesResponse(stdout=b"")

    def RunPlugin(self, request: Any, context: Any) -> Iterator[Any]:  # noqa: N802
        """Run a plugin's folder, passing on what it writes until it ends."""
        environment = dict(pair.split("=", 1) for pair in request.env) if request.env else None
        process = subprocess.Popen(
            [sys.executable, request.info.program_directory, *request.args],
            cwd=request.pwd,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        context.add_callback(process.terminate)
        written: queue.Queue[Any] = queue.Queue()
        for stream, name in ((process.stdout, "stdout"), (process.stderr, "stderr")):
            threading.Thread(target=_pass_on, args=(stream, name, written), daemon=True).start()
        for _ in ("stdout", "stderr"):
            while (response := written.get()) is not None:
                yield response
        yield language_pb2.RunPluginResponse(exitcode=process.wait())

    def Cancel(self, request: Any, context: Any) -> Any:  # noqa: N802, ARG002
        """Acknowledge; the engine ends this process itself."""
        return empty_pb2.Empty()


def _pass_on(stream: IO[bytes], name: str, written: "queue.Queue[Any]") -> None:
    response: Any = language_pb2.RunPluginResponse
    while chunk := os.read(stream.fileno(), READ_BYTES):
        written.put(response(**{name: chunk}))
    written.put(None)


def main() -> None:
    """Serve on a free port and tell the engine which, as the plugin protocol wants it."""
    options = [("grpc.max_receive_message_length", MAX_MESSAGE_BYTES)]
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=8), options=options)
    language_pb2_grpc.add_LanguageRuntimeServicer_to_server(Host(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    print(port, flush=True)
    with suppress(KeyboardInterrupt):
        server.wait_for_termination()


if __name__ == "__main__":
    main()
