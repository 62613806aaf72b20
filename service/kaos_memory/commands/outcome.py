"""How commands end: what each exit code means, and what is told with it."""

from enum import IntEnum
from typing import NoReturn

import typer


class ExitCode(IntEnum):
    """What a script may conclude from a command's end."""

    DONE = 0
    FAILED = 1
    """Something that was asked for was not found, or could not be done."""
    REFUSED = 2
    """The settings or the usage are wrong; nothing was done."""
    NO_STORAGE = 3
    """The storage is unavailable, or not fit for this store."""


def complain(*problems: str) -> None:
    """Say on standard error what is wrong and what to do."""
    for problem in problems:
        typer.echo(f"error: {problem}", err=True)


def end(code: ExitCode, *problems: str) -> NoReturn:
    """End the command, saying why."""
    complain(*problems)
    raise typer.Exit(code)
