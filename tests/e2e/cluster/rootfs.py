"""The file system that every image of the tests starts from: Debian with Python, by debootstrap."""

import hashlib
import tempfile
from pathlib import Path

from tests.e2e.cluster.commands import run
from tests.e2e.cluster.paths import image_cache

SUITE = "bookworm"
PACKAGES = ("ca-certificates", "python3", "python3-venv")
# Whoever runs a test image reads no manual in it, and apt fetches its lists again.
_LEFT_OUT = (
    "./usr/share/doc/*",
    "./usr/share/info/*",
    "./usr/share/locale/*",
    "./usr/share/man/*",
    "./var/cache/apt/*",
    "./var/lib/apt/lists/*",
    "./var/log/*",
    "./dev/*",
    # Of this machine, not of the image.
    "./etc/hostname",
    "./etc/resolv.conf",
)


def digest() -> str:
    """Return the hash of everything that decides the file system's content."""
    return hashlib.sha256(repr((SUITE, PACKAGES, _LEFT_OUT)).encode()).hexdigest()[:16]


def create() -> Path:
    """Return the folder that holds `rootfs.tar`, made now (about a minute) or before."""
    folder = image_cache() / f"rootfs-{digest()}"
    if folder.is_dir():
        return folder
    image_cache().mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".rootfs-", dir=image_cache()) as scratch:
        root, result = Path(scratch) / "root", Path(scratch) / "result"
        result.mkdir()
        include = f"--include={','.join(PACKAGES)}"
        run("debootstrap", "--variant=minbase", include, SUITE, root, *_mirror())
        left_out = [f"--exclude={pattern}" for pattern in _LEFT_OUT]
        run("tar", "--create", "--numeric-owner", f"--file={result / 'rootfs.tar'}", *left_out,
            f"--directory={root}", ".")  # fmt: skip
        result.rename(folder)
    return folder


def _mirror() -> tuple[str, ...]:
    """Return the mirror that this machine's apt uses for the suite; none if it uses no such."""
    line_format = "$(ORIGIN) $(COMPONENT) $(CODENAME) $(REPO_URI)"
    for line in run("apt-get", "indextargets", f"--format={line_format}").splitlines():
        origin, component, codename, uri = line.split(" ", 3)
        if (origin, component, codename) == ("Debian", "main", SUITE):
            return (uri,)
    return ()
