"""The machine's network state that the cluster brings, and its removal."""

import json
import shutil
from contextlib import suppress
from typing import Any

from tests.e2e.cluster.addresses import BRIDGE, NODE_ADDRESS, POD_BRIDGE
from tests.e2e.cluster.commands import SYSTEM_PATH, run
from tests.e2e.cluster.errors import ClusterError

CHAIN_PREFIX = "KUBE-"
"""Chains of kube-proxy, kubelet and kube-router all begin so."""
_SET_PREFIXES = ("KUBE-", "inet6:KUBE-", "kube-router-", "inet6:kube-router-")


def create_bridge() -> None:
    """Add the bridge that carries the node's address."""
    run("ip", "link", "add", BRIDGE, "type", "bridge")
    run("ip", "address", "add", f"{NODE_ADDRESS}/32", "dev", BRIDGE)
    run("ip", "link", "set", BRIDGE, "up")


def bridge_present() -> bool:
    """Whether the machine carries the bridge, which is ours by its name."""
    return BRIDGE in _links()


def chains_present() -> bool:
    """Whether any iptables chain of a Kubernetes is there, ours or another's."""
    return any(f":{CHAIN_PREFIX}" in _saved(tool) for tool in ("iptables", "ip6tables"))


def remove_links() -> None:
    """Delete both bridges, and the pods' ends of links that still hang on one."""
    links = _links()
    for name, link in links.items():
        if link.get("master") == POD_BRIDGE:
            # A link goes by itself when its pod's namespace goes, which may happen just now.
            with suppress(ClusterError):
                run("ip", "link", "delete", name)
    for name in (POD_BRIDGE, BRIDGE):
        if name in links:
            run("ip", "link", "delete", name)


def remove_chains() -> None:
    """Delete the Kubernetes chains, and the rules elsewhere that jump to them."""
    for tool in ("iptables", "ip6tables"):
        script = _removal(_saved(tool))
        if script:
            run(f"{tool}-restore", "--noflush", stdin=script)


def remove_sets() -> None:
    """Destroy the ipsets of kube-router; the rules that use them must be gone."""
    if shutil.which("ipset", path=SYSTEM_PATH) is None:
        return
    for name in run("ipset", "list", "-name").split():
        if name.startswith(_SET_PREFIXES):
            run("ipset", "destroy", name)


def _links() -> dict[str, dict[str, Any]]:
    return {link["ifname"]: link for link in json.loads(run("ip", "-json", "link", "show"))}


def _saved(tool: str) -> str:
    if shutil.which(f"{tool}-save", path=SYSTEM_PATH) is None:
        return ""
    try:
        return run(f"{tool}-save")
    except ClusterError:
        if tool == "ip6tables":  # a kernel without IPv6 has no such tables, hence no such chains
            return ""
        raise


def _removal(saved: str) -> str:
    """Turn an iptables-save listing into the restore script that removes the chains."""
    script: list[str] = []
    table, chains, jumps = "", list[str](), list[str]()
    for line in saved.splitlines():
        if line.startswith("*"):
            table, chains, jumps = line, [], []
        elif line.startswith(f":{CHAIN_PREFIX}"):
            chains.append(line[1:].split()[0])
        elif line.startswith("-A ") and not line.startswith(f"-A {CHAIN_PREFIX}"):
            if f" -j {CHAIN_PREFIX}" in line or f" -g {CHAIN_PREFIX}" in line:
                jumps.append(f"-D{line[2:]}")
        elif line == "COMMIT" and chains:
            # A declared chain is flushed, so that no chain is referenced when it is deleted.
            script += [table, *(f":{chain} - [0:0]" for chain in chains), *jumps]
            script += [*(f"-X {chain}" for chain in chains), "COMMIT"]
    return "".join(f"{line}\n" for line in script)
