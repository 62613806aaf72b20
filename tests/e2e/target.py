"""The cluster that is tested: the machine's own, or the one that `KAOS_E2E_KUBECONFIG` names."""

import contextlib
import json
import os
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.e2e.cluster import environment, images
from tests.e2e.cluster.paths import existing_kubeconfig
from tests.e2e.failure import E2EError

REPOSITORY = Path(__file__).parents[2]

SERVICE_IMAGE = "localhost/kaos-memorystore:test"
MODELS_IMAGE = "localhost/kaos-model-server:test"


@dataclass(frozen=True)
class Images:
    """What the cluster runs."""

    service: str
    models: str
    postgres: str


def build_images() -> Images:
    """Build and load all images; with another cluster, take those that its user names."""
    if existing_kubeconfig():
        return Images(
            service=_given("KAOS_E2E_IMAGE", "make image"),
            models=_given("KAOS_E2E_MODELS_IMAGE", "dev/kaos_dev/model_server/Dockerfile"),
            postgres=os.environ.get("KAOS_E2E_POSTGRES_IMAGE", ""),
        )
    images.ensure(images.PGVECTOR)
    images.build_and_load(SERVICE_IMAGE, REPOSITORY / "service" / "Dockerfile", REPOSITORY)
    models = REPOSITORY / "dev" / "kaos_dev" / "model_server" / "Dockerfile"
    images.build_and_load(MODELS_IMAGE, models, REPOSITORY)
    return Images(SERVICE_IMAGE, MODELS_IMAGE, images.PGVECTOR_TAG)


def _given(variable: str, made_by: str) -> str:
    value = os.environ.get(variable)
    if not value:
        raise E2EError(f"with KAOS_E2E_KUBECONFIG, {variable} must name an image (see {made_by})")
    return value


def kubectl(*arguments: str, stdin: str | None = None) -> str:
    """Run kubectl against the tested cluster and return its output."""
    done = subprocess.run(
        [environment.kubectl(), "--kubeconfig", environment.kubeconfig(), *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        check=False,
        timeout=180,
    )
    if done.returncode != 0:
        raise E2EError(f"kubectl {' '.join(arguments[:3])}: {done.stderr.strip()[-500:]}")
    return done.stdout


def objects(kind: str, *arguments: str) -> list[dict[str, Any]]:
    """The objects of a kind, as `kubectl get` shows them."""
    return json.loads(kubectl("get", kind, *arguments, "--output=json"))["items"]


def apply(*manifests: dict[str, Any]) -> None:
    """Apply objects given as plain data."""
    content = {"apiVersion": "v1", "kind": "List", "items": list(manifests)}
    kubectl("apply", "--filename=-", stdin=json.dumps(content))


def until(what: str, true: Callable[[], bool], seconds: float = 90) -> float:
    """Wait for a condition of the cluster; returns the seconds it took."""
    started = time.monotonic()
    while not true():
        if time.monotonic() - started > seconds:
            raise E2EError(f"{what} did not come true within {seconds:.0f} s")
        time.sleep(0.2)
    return time.monotonic() - started


def diagnosis() -> str:
    """What the cluster shows of a failure: pods, the latest events, logs of what is not ready."""
    parts = [kubectl("get", "pods", "--all-namespaces", "--output=wide")]
    events = kubectl("get", "events", "--all-namespaces", "--sort-by=.lastTimestamp")
    parts.append("\n".join(events.splitlines()[-25:]))
    for pod in objects("pods", "--all-namespaces"):
        statuses = pod["status"].get("containerStatuses", [])
        if not all(status["ready"] for status in statuses):
            name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
            log = ["-n", namespace, "logs", name, "--all-containers", "--tail=30"]
            with contextlib.suppress(E2EError):
                parts.append(f"{namespace}/{name}:\n{kubectl(*log)}")
    return "\n\n".join(parts)
