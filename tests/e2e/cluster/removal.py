"""Remove everything of the cluster from the machine, from any half state.

Nothing here trusts that an earlier step of `up` was reached: each step looks for what is there.
The order matters: first whoever would restart something, then processes, then what they held.
"""

import shutil

from tests.e2e.cluster import containers, network, processes, sysctls
from tests.e2e.cluster.errors import ClusterError
from tests.e2e.cluster.paths import STATE


def present() -> bool:
    """Whether anything of a cluster of ours is on the machine, running or not."""
    return STATE.exists() or network.bridge_present()


def refuse_foreign_cluster() -> None:
    """Raise `ClusterError` if another Kubernetes uses this machine's iptables."""
    if not present() and network.chains_present():
        raise ClusterError(
            "Another Kubernetes runs on this machine (iptables has its KUBE-* chains), and two"
            " cannot share it. Point KAOS_E2E_KUBECONFIG at that one's kubeconfig to test on it."
        )


def remove() -> None:
    """End all processes and delete all state. Does nothing where nothing is left."""
    if not present():
        return
    processes.kill_recorded(processes.recorded())
    containers.end_all()
    containers.remove_sockets()
    containers.unmount_all()
    network.remove_links()
    network.remove_chains()
    network.remove_sets()
    containers.remove_cgroups()
    containers.remove_traces()
    sysctls.restore()
    if STATE.exists():
        shutil.rmtree(STATE)
