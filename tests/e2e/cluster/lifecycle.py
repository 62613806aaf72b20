"""Bring the cluster up and down. Both succeed from any half state and may be repeated."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.e2e.cluster import (
    containerd,
    containers,
    daemons,
    dns,
    images,
    kubectl,
    network,
    pki,
    processes,
    removal,
    requirements,
    sysctls,
    tools,
    volumes,
)
from tests.e2e.cluster.errors import ClusterError
from tests.e2e.cluster.locks import exclusive
from tests.e2e.cluster.paths import PACKAGE, STATE, existing_kubeconfig

LOCK = Path("/run/lock/kaos-cluster")
START_SECONDS = 120.0

CLUSTER_TOOLS = (tools.KUBERNETES, tools.COREDNS, tools.KUBE_ROUTER, tools.PAUSE)

Report = Callable[[str], None]


def up(*, fresh: bool = False, report: Report = print) -> Path:
    """Start the cluster unless it is healthy, and return the admin's kubeconfig.

    What an earlier run left, in whatever state, is removed first; `fresh` removes a healthy cluster
    as well. Volumes whose claims are gone are emptied and offered again. With
    `KAOS_E2E_KUBECONFIG` set, that cluster is used and nothing is done.
    """
    if existing := existing_kubeconfig():
        report(f"Using the existing cluster of {existing}")
        return existing
    requirements.require(requirements.CLUSTER_PACKAGES)
    with exclusive(LOCK):
        if fresh or not healthy():
            removal.refuse_foreign_cluster()
            if removal.present():
                report("Removing what an earlier run left")
            removal.remove()
            _prepare(report)
            _start(report)
        volumes.offer()
    return pki.ADMIN_KUBECONFIG


def down(*, report: Report = print) -> None:
    """Stop the cluster and remove everything of it; built tools and images stay."""
    if existing := existing_kubeconfig():
        report(f"Leaving the existing cluster of {existing} alone")
        return
    if os.geteuid() != 0:
        raise ClusterError("Removing the cluster needs root, as starting it did.")
    with exclusive(LOCK):
        removal.remove()


def healthy() -> bool:
    """Whether all daemons run, the node is ready and names resolve."""
    alive = all(processes.running(name) for name in daemons.names())
    return alive and kubectl.holds(_node_ready) and kubectl.holds(dns.answers)


def _prepare(report: Report) -> None:
    """Make what takes long before anything is started, so that a start never stops half way."""
    for tool in CLUSTER_TOOLS:
        if not tool.built:
            report(f"Building {tool.name} (minutes, once)")
            tools.build(tool)
    requirements.require(requirements.BUILD_PACKAGES)
    for image in images.SYSTEM_IMAGES:
        images.ensure(image)


def _start(report: Report) -> None:
    STATE.mkdir(mode=0o700)
    sysctls.apply()
    pki.create()
    daemons.write_configuration()
    network.create_bridge()
    containers.create_cgroups()
    started: list[processes.Daemon] = []

    def start(*some: processes.Daemon) -> None:
        for daemon in some:
            daemon.start()
            started.append(daemon)

    def wait_for(what: str, condition: Callable[[], bool]) -> None:
        kubectl.wait_for(what, condition, START_SECONDS, lambda: [d.check() for d in started])

    report("Waiting for the API server")
    start(daemons.etcd(), daemons.containerd(), daemons.api_server())
    wait_for("an answer of containerd", containerd.answers)
    for image in images.SYSTEM_IMAGES:
        containerd.load(image.archive)
    wait_for("readiness of the API server", _api_ready)
    start(*daemons.controllers())
    kubectl.kubectl("apply", "--filename", PACKAGE / "manifests")
    report("Waiting for the node and for DNS")
    wait_for("registration of the node", lambda: bool(_nodes()))
    start(daemons.policy_enforcer())
    wait_for("readiness of the node", _node_ready)
    wait_for("an answer of the cluster's DNS", dns.answers)


def _api_ready() -> bool:
    return kubectl.kubectl("get", "--raw=/readyz") == "ok"


def _nodes() -> list[dict[str, Any]]:
    return kubectl.get_json("nodes")["items"]


def _node_ready() -> bool:
    conditions = [condition for node in _nodes() for condition in node["status"]["conditions"]]
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)
