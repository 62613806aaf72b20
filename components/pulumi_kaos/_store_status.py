"""A store's phase, read from the status of its Deployment."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class StoreStatus:
    """What the KAOS MemoryStore resource shows under `status`."""

    phase: str
    """Pending, Ready or Failed."""
    message: str


def store_status(status: Any, replicas: int) -> StoreStatus:
    """Judge a Deployment's status; None while Kubernetes has not reported any."""
    available = getattr(status, "available_replicas", None) or 0
    served = f"{available} of {replicas} replicas are available"
    if available >= replicas:
        return StoreStatus("Ready", served)
    for condition in getattr(status, "conditions", None) or []:
        stuck = condition.type == "Progressing" and condition.status == "False"
        refused = condition.type == "ReplicaFailure" and condition.status == "True"
        if stuck or refused:
            return StoreStatus("Failed", f"{served}: {condition.message or condition.reason}")
    return StoreStatus("Pending", served)
