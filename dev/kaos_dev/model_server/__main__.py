"""`python -m kaos_dev.model_server`: serve until SIGTERM."""

import json
import socket
from typing import Annotated

import typer
import uvicorn

from kaos_dev.model_server.app import ServerState, create_app
from kaos_dev.model_server.server import server_config


def main(
    *,
    api_key: Annotated[
        str, typer.Option(envvar="MODEL_SERVER_API_KEY", help="The key that clients must send.")
    ],
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on; 0 takes a free one.")] = 0,
    scriptable: Annotated[
        bool, typer.Option("--scriptable", help="Serve /_script, /_release and /_requests.")
    ] = False,
) -> None:
    """Serve deterministic models behind OpenAI's API; prints one line of JSON when ready."""
    listener = socket.create_server((host, port))
    url = f"http://{host}:{listener.getsockname()[1]}/v1"

    def announce() -> None:
        typer.echo(json.dumps({"url": url}))

    app = create_app(ServerState(api_key), scriptable=scriptable, on_ready=announce)
    uvicorn.Server(server_config(app)).run(sockets=[listener])


if __name__ == "__main__":
    typer.run(main)
