"""Install the Debian packages that the cluster and the image builds lean on, where missing."""

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from tests.e2e.cluster.commands import SYSTEM_PATH, run
from tests.e2e.cluster.errors import ClusterError

CNI_PLUGINS = Path("/usr/lib/cni")

CLUSTER_PACKAGES: Mapping[str, str] = {
    "containerd": "containerd",
    "ctr": "containerd",
    "etcd": "etcd-server",
    "ip": "iproute2",
    "ipset": "ipset",
    "iptables": "iptables",
    "openssl": "openssl",
    "runc": "runc",
    "setsid": "util-linux",
    "sysctl": "procps",
    str(CNI_PLUGINS / "bridge"): "containernetworking-plugins",
}
"""Program, or path of one -> the Debian package that brings it."""

BUILD_PACKAGES: Mapping[str, str] = {
    "buildah": "buildah",
    "ctr": "containerd",
    "debootstrap": "debootstrap",
    "runc": "runc",
    "unshare": "util-linux",
}


def require(packages: Mapping[str, str]) -> None:
    """Install what is missing of `packages`. Raise `ClusterError` without root or apt."""
    if os.geteuid() != 0:
        raise ClusterError(
            "This needs root (bridges, mounts, cgroups). Run it as root, or point"
            " KAOS_E2E_KUBECONFIG at the kubeconfig of an existing cluster."
        )
    missing = sorted({package for program, package in packages.items() if not _present(program)})
    if not missing:
        return
    if shutil.which("apt-get", path=SYSTEM_PATH) is None:
        raise ClusterError(
            f"Missing and not installable without apt-get: {', '.join(missing)}. Install them,"
            " or point KAOS_E2E_KUBECONFIG at the kubeconfig of an existing cluster."
        )
    quiet = {"DEBIAN_FRONTEND": "noninteractive"}
    run("apt-get", "update", "-qq", environment=quiet)
    run("apt-get", "install", "-qq", "--no-install-recommends", *missing, environment=quiet)


def _present(program: str) -> bool:
    return shutil.which(program, path=SYSTEM_PATH) is not None
