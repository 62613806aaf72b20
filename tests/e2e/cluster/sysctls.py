"""Kernel settings that Kubernetes changes on the machine, and their old values."""

import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import cast

from tests.e2e.cluster.paths import STATE

_RECORD = STATE / "sysctls.json"
_NEEDED: Mapping[str, str] = {
    "net/ipv4/ip_forward": "1",
    # So that a pod's answer to a Service's address on its own bridge finds its way back.
    "net/bridge/bridge-nf-call-iptables": "1",
}
_CHANGED_BY_KUBELET_AND_PROXY = (
    "vm/overcommit_memory",
    "kernel/panic",
    "kernel/panic_on_oops",
    "kernel/keys/root_maxkeys",
    "kernel/keys/root_maxbytes",
    "net/ipv4/conf/all/route_localnet",
    "net/netfilter/nf_conntrack_tcp_be_liberal",
)


def apply() -> None:
    """Record the present values of all settings that will change, then set what is needed."""
    present: dict[str, str] = {}
    for name in (*_NEEDED, *_CHANGED_BY_KUBELET_AND_PROXY):
        with suppress(OSError):
            present[name] = _path(name).read_text().strip()
    _RECORD.write_text(json.dumps(present))
    for name, value in _NEEDED.items():
        if present.get(name) != value and name in present:
            _path(name).write_text(value)


def restore() -> None:
    """Set everything back to the recorded values."""
    try:
        recorded = cast("dict[str, str]", json.loads(_RECORD.read_text()))
    except (OSError, ValueError):
        return  # never recorded, so nothing was changed yet
    for name, value in recorded.items():
        with suppress(OSError):
            if _path(name).read_text().strip() != value:
                _path(name).write_text(value)


def _path(name: str) -> Path:
    return Path("/proc/sys") / name
