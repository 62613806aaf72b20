"""Run a program to its end; a failure carries what the program said."""

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.e2e.cluster.errors import ClusterError

SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
TAIL_LINES = 25


def run(
    *command: str | Path,
    stdin: str | None = None,
    environment: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> str:
    """Return the standard output of `command`; raise `ClusterError` where it fails.

    `environment` is added to this process's own.
    """
    words = [str(word) for word in command]
    try:
        done = subprocess.run(
            words,
            input="" if stdin is None else stdin,
            env={**os.environ, **(environment or {})},
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
        )
    except FileNotFoundError as error:
        raise ClusterError(f"{words[0]} is not installed") from error
    if done.returncode:
        raise ClusterError(
            f"{_shown(words)} failed ({done.returncode})\n{tail(done.stderr or done.stdout)}"
        )
    return done.stdout


def tail(text: str, lines: int = TAIL_LINES) -> str:
    """Return the last lines of `text`."""
    return "\n".join(text.strip().splitlines()[-lines:])


def _shown(words: Sequence[str]) -> str:
    line = " ".join(words)
    return line if len(line) <= 200 else line[:197] + "..."
