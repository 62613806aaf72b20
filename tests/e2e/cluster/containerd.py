"""Hand images to the cluster's container runtime."""

from pathlib import Path

from tests.e2e.cluster.commands import run
from tests.e2e.cluster.daemons import CONTAINERD_SOCKET
from tests.e2e.cluster.paths import STATE

_LOADED = STATE / "loaded"


def load(archive: Path) -> bool:
    """Import `archive` under the tag that it carries; return False where it was there already."""
    mark = _LOADED / archive.name
    if mark.exists():
        return False
    ctr("images", "import", archive)
    _LOADED.mkdir(exist_ok=True)
    for earlier in _LOADED.glob(f"{archive.name.partition('@')[0]}@*"):
        earlier.unlink()
    mark.touch()
    return True


def answers() -> bool:
    """Whether the runtime takes requests."""
    return "Server" in ctr("version")


def ctr(*arguments: str | Path) -> str:
    """Run containerd's own client on our runtime, in the kubelet's namespace."""
    return run("ctr", "--address", CONTAINERD_SOCKET, "--namespace", "k8s.io", *arguments)
