"""Find and end what the container runtime left, whether or not the runtime itself still lives.

Every pod's processes are below one cgroup of ours and every shim names our socket on its command
line, so nothing has to be asked of a containerd that may be gone.
"""

import os
import shutil
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from tests.e2e.cluster.addresses import CGROUP
from tests.e2e.cluster.commands import run
from tests.e2e.cluster.errors import ClusterError
from tests.e2e.cluster.paths import STATE
from tests.e2e.cluster.processes import command_of

END_SECONDS = 20.0
_RUNTIME_PROGRAMS = {"containerd-shim-runc-v2", "runc"}


def create_cgroups() -> None:
    """Add our cgroup to each hierarchy: the kubelet wants to find its root there."""
    for hierarchy in _hierarchies():
        (hierarchy / CGROUP).mkdir(exist_ok=True)


def end_all() -> None:
    """End all shims and all processes of pods; raise `ClusterError` if some do not go."""
    deadline = time.monotonic() + END_SECONDS
    while pids := {*_shims(), *_in_cgroups()}:
        if time.monotonic() > deadline:
            raise ClusterError(f"processes of pods survived SIGKILL: {sorted(pids)}")
        for pid in pids:
            _kill_if_ours(pid)
        time.sleep(0.05)


def remove_cgroups() -> None:
    """Delete our cgroup in each hierarchy, the deepest first."""
    deadline = time.monotonic() + END_SECONDS
    for hierarchy in _hierarchies():
        root = hierarchy / CGROUP
        for folder in sorted((path for path in root.rglob("*") if path.is_dir()), reverse=True):
            _remove_cgroup(folder, deadline)
        if root.is_dir():
            _remove_cgroup(root, deadline)


def remove_sockets() -> None:
    """Delete the shims' sockets, which containerd keeps outside its state folder."""
    tasks = STATE / "containerd" / "state" / "io.containerd.runtime.v2.task"
    for address in tasks.glob("*/*/address"):
        with suppress(OSError):
            Path(address.read_text().removeprefix("unix://")).unlink(missing_ok=True)


def unmount_all() -> None:
    """Unmount everything below the state folder, the last mounted first."""
    for point in reversed(_mounts()):
        with suppress(ClusterError):
            run("umount", point)
    # What a dying process still holds busy goes as soon as that process is gone.
    for point in reversed(_mounts()):
        with suppress(ClusterError):
            run("umount", "--lazy", point)
    if left := _mounts():
        raise ClusterError(f"still mounted: {', '.join(left)}")


def remove_traces() -> None:
    """Delete the few files that the kubelet and the network plugin keep at fixed places."""
    for result in Path("/var/lib/cni/results").glob("*"):
        if f'"{STATE}/' in result.read_text(errors="replace"):
            result.unlink(missing_ok=True)
    for link in Path("/var/log/containers").glob("*.log"):
        if link.is_symlink() and link.readlink().is_relative_to(STATE):
            link.unlink(missing_ok=True)
    shutil.rmtree("/var/lib/kubelet/device-plugins", ignore_errors=True)
    for folder in (
        "/var/lib/cni/results",
        "/var/lib/cni",
        "/var/log/containers",
        "/var/lib/kubelet",
        "/run/containerd/s",
        "/run/containerd",
    ):
        with suppress(OSError):  # absent, or in use by others
            Path(folder).rmdir()


def _kill_if_ours(pid: int) -> None:
    with suppress(ProcessLookupError):
        handle = os.pidfd_open(pid)
        try:
            # Checked again with the handle open: this very process gets the signal.
            if _is_shim(pid) or _is_in_cgroup(pid):
                signal.pidfd_send_signal(handle, signal.SIGKILL)
        finally:
            os.close(handle)


def _shims() -> Iterator[int]:
    return (int(entry.name) for entry in Path("/proc").glob("[0-9]*") if _is_shim(int(entry.name)))


def _is_shim(pid: int) -> bool:
    with suppress(OSError):
        words = command_of(pid)
        ours = any(word.startswith(f"{STATE}/") for word in words[1:])
        return bool(words) and Path(words[0]).name in _RUNTIME_PROGRAMS and ours
    return False


def _in_cgroups() -> Iterator[int]:
    for hierarchy in _hierarchies():
        for members in (hierarchy / CGROUP).rglob("cgroup.procs"):
            with suppress(OSError):
                yield from (int(pid) for pid in members.read_text().split())


def _is_in_cgroup(pid: int) -> bool:
    with suppress(OSError):
        lines = Path(f"/proc/{pid}/cgroup").read_text().splitlines()
        return any(f"{line.split(':', 2)[2]}/".startswith(f"/{CGROUP}/") for line in lines)
    return False


def _hierarchies() -> list[Path]:
    """Return where cgroups are mounted: several folders for v1, one for v2, or both."""
    return [Path(point) for point, kind in _mount_table() if kind in {"cgroup", "cgroup2"}]


def _remove_cgroup(folder: Path, deadline: float) -> None:
    while True:
        try:
            folder.rmdir()
        except FileNotFoundError:
            return
        except OSError as error:  # busy until the kernel has buried the last process
            if time.monotonic() > deadline:
                raise ClusterError(f"cannot remove the cgroup {folder}: {error}") from error
            time.sleep(0.05)
        else:
            return


def _mounts() -> list[str]:
    return [point for point, _ in _mount_table() if point.startswith(f"{STATE}/")]


def _mount_table() -> list[tuple[str, str]]:
    """Return (mount point, file system) of every mount, in the order of mounting."""
    table = [line.split() for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    return [(fields[4], fields[fields.index("-") + 1]) for fields in table]
