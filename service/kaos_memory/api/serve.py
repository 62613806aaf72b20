"""The process: settings from the environment, a server that drains."""

import logging
import math
import os
import sys

import uvicorn

from kaos_memory.api.app import create_app
from kaos_memory.assembly import assemble
from kaos_memory.settings import SettingsError, from_environment
from kaos_memory.telemetry import exporters, logs

EXIT_BAD_SETTINGS = 2

MAX_CONNECTIONS = 1_024
"""Open at once; on further ones each request is answered with 503. Clients that keep theirs open
without asking lose them after 5 seconds."""


def main() -> None:
    """Serve one store until SIGTERM. Exit code 2 where settings break rules."""
    logs.set_up()
    try:
        settings = from_environment(os.environ)
        exporting = exporters.start(settings)
        parts = assemble(settings, exporting.telemetry)
    except SettingsError as error:
        for line in error.problems:
            sys.stderr.write(f"error: {line}\n")
        raise SystemExit(EXIT_BAD_SETTINGS) from None
    if settings.auth.mode == "disabled":
        logging.getLogger(__name__).warning("auth_disabled")
    parts.closing.append(exporting.aclose)
    uvicorn.run(
        create_app(parts),
        host=settings.server.host,
        port=settings.server.port,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        log_config=None,
        limit_concurrency=MAX_CONNECTIONS,
        timeout_graceful_shutdown=math.ceil(settings.server.drain_seconds / 2),
    )


if __name__ == "__main__":
    main()
