"""Where everything lies that is expensive to make again. Run as a program, it prints the folder.

The Makefile runs it before anything is installed: it needs the standard library only.
"""

import os
import sys
from pathlib import Path


def cache_root() -> Path:
    """Return the folder: `KAOS_CACHE_DIR`, else `$XDG_CACHE_HOME/kaos`, else `~/.cache/kaos`."""
    configured = os.environ.get("KAOS_CACHE_DIR")
    if configured:
        return Path(configured).absolute()
    xdg = os.environ.get("XDG_CACHE_HOME")
    return (Path(xdg) if xdg else Path.home() / ".cache").absolute() / "kaos"


def cache_for_other_users() -> Path:
    """Return the folder for what the user that runs PostgreSQL for root must reach.

    The root's home is closed to others, so for root it is `/var/cache/kaos`, unless
    `KAOS_CACHE_DIR` says where everything goes.
    """
    if os.geteuid() == 0 and not os.environ.get("KAOS_CACHE_DIR"):
        return Path("/var/cache/kaos")
    return cache_root()


if __name__ == "__main__":
    sys.stdout.write(f"{cache_root()}\n")
