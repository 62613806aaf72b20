"""Persistent volumes: a fixed few, on the machine's disk, made usable again after each release.

They are `local` volumes and not `hostPath` ones because the kubelet applies `fsGroup` to those
only, as to real disks: a workload that forgets it fails here as it would in production.
"""

import shutil
from pathlib import Path
from typing import Any

from tests.e2e.cluster.addresses import node_name
from tests.e2e.cluster.kubectl import apply, get_json, kubectl
from tests.e2e.cluster.paths import STATE

STORAGE_CLASS = "standard"
COUNT = 6
CAPACITY = "10Gi"
_NAMES = tuple(f"volume-{number}" for number in range(1, COUNT + 1))


def offer() -> None:
    """Create the default StorageClass and all volumes; free those whose claim is gone."""
    apply(_storage_class())
    phases = {
        volume["metadata"]["name"]: volume["status"].get("phase", "Pending")
        for volume in get_json("persistentvolumes")["items"]
    }
    used = [name for name in _NAMES if phases.get(name) in {"Released", "Failed"}]
    if used:
        kubectl("delete", "persistentvolume", *used)
    for name in _NAMES:
        if name in used or name not in phases:
            _empty(_folder(name))
    apply(*(_volume(name) for name in _NAMES if name in used or name not in phases))


def _folder(name: str) -> Path:
    return STATE / "volumes" / name


def _empty(folder: Path) -> None:
    if folder.exists():
        shutil.rmtree(folder)
    folder.mkdir(parents=True)


def _storage_class() -> dict[str, Any]:
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {
            "name": STORAGE_CLASS,
            "annotations": {"storageclass.kubernetes.io/is-default-class": "true"},
        },
        "provisioner": "kubernetes.io/no-provisioner",
        # As most clouds do: bound when the first pod that uses the claim is placed.
        "volumeBindingMode": "WaitForFirstConsumer",
    }


def _volume(name: str) -> dict[str, Any]:
    here = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node_name()]}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": {
            "storageClassName": STORAGE_CLASS,
            "capacity": {"storage": CAPACITY},
            "accessModes": ["ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Retain",
            "local": {"path": str(_folder(name))},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [here]}]}},
        },
    }
