"""Ask the cluster, and wait for it."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.e2e.cluster.commands import run
from tests.e2e.cluster.errors import ClusterError
from tests.e2e.cluster.pki import ADMIN_KUBECONFIG
from tests.e2e.cluster.tools import KUBERNETES

POLL_SECONDS = 0.2


def kubectl(*arguments: str | Path, stdin: str | None = None) -> str:
    """Run kubectl as the cluster's admin and return its output."""
    program = KUBERNETES.binary("kubectl")
    return run(program, "--kubeconfig", ADMIN_KUBECONFIG, *arguments, stdin=stdin)


def get_json(*arguments: str) -> dict[str, Any]:
    """Return what `kubectl get` shows, as parsed JSON."""
    return json.loads(kubectl("get", *arguments, "--output=json"))


def apply(*objects: dict[str, Any]) -> None:
    """Apply objects given as plain data; none at all is fine."""
    if not objects:
        return
    content = {"apiVersion": "v1", "kind": "List", "items": list(objects)}
    kubectl("apply", "--filename=-", stdin=json.dumps(content))


def holds(condition: Callable[[], bool]) -> bool:
    """Return the condition's value; a failure to ask counts as no."""
    try:
        return condition()
    except (ClusterError, OSError):
        return False


def wait_for(
    what: str, condition: Callable[[], bool], seconds: float, check: Callable[[], object]
) -> None:
    """Poll until `condition` holds. Raise `ClusterError` after `seconds`.

    `check` runs between polls and raises if waiting has become pointless.
    """
    deadline = time.monotonic() + seconds
    while not holds(condition):
        check()
        if time.monotonic() > deadline:
            raise ClusterError(f"{what} did not come true within {seconds:.0f} s")
        time.sleep(POLL_SECONDS)
