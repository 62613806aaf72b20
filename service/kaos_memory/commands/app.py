"""The command line as a whole."""

import logging
import os
import sys
from importlib.metadata import version
from typing import Annotated

import typer

from kaos_memory.commands import erasures, work
from kaos_memory.commands.outcome import ExitCode
from kaos_memory.telemetry import logs

app = typer.Typer(
    help="Serve one memory store, and look after it. Every command reads the settings of the "
    "service from KAOS_MEMORY_* and works on the store that they name.",
    epilog="Exit codes: 0 done; 1 something asked for was not found or failed; 2 wrong settings "
    "or usage; 3 the storage is unavailable or not fit for this store.",
    no_args_is_help=True,
    add_completion=False,
    # Plain help and plain tracebacks: Rich would show values, and boxes where nobody reads them.
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
app.add_typer(work.app)
app.add_typer(erasures.app)


def main() -> None:
    """Run one command. What nobody foresaw is logged without its text, which may hold secrets."""
    logs.set_up()
    logging.getLogger().setLevel(logging.WARNING)
    try:
        app(prog_name="kaos-memory")
    except Exception:
        logging.getLogger(__name__).exception("command_failed")
        raise SystemExit(ExitCode.FAILED) from None


@app.command()
def serve() -> None:
    """Serve the store until SIGTERM. The same as `python -m kaos_memory.api.serve`."""
    # This process becomes the service, which then carries nothing of the command line with it.
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, "-m", "kaos_memory.api.serve"])  # noqa: S606


def _show_version(asked: bool) -> None:
    if asked:
        typer.echo(version("kaos-memorystore"))
        raise typer.Exit


@app.callback()
def options(
    *,
    _version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    """Options of the command itself."""
