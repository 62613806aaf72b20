"""The rendered objects: valid for Kubernetes, fit for Pod Security "restricted"."""

from collections.abc import Iterator
from typing import Any

import kubernetes_validate
import pytest

from .samples import demo, dev


def named(manifest: dict[str, Any]) -> str:
    metadata = manifest["metadata"]
    return f"{manifest['kind']}-{metadata.get('namespace', '')}-{metadata['name']}"


# In a fixed order: resources register as they come.
MANIFESTS = sorted([*dev().manifests(), *demo().manifests()], key=named)
WORKLOADS = [m for m in MANIFESTS if m["kind"] in ("Deployment", "StatefulSet")]


@pytest.mark.parametrize("version", ["1.31", "1.32", "1.33", "1.34"])
@pytest.mark.parametrize("manifest", MANIFESTS, ids=named)
def test_it_is_valid(manifest: dict[str, Any], version: str):
    kubernetes_validate.validate(manifest, version, strict=True)


def containers(workload: dict[str, Any]) -> Iterator[dict[str, Any]]:
    spec = workload["spec"]["template"]["spec"]
    yield from spec["containers"]
    yield from spec.get("initContainers", [])


@pytest.mark.parametrize("workload", WORKLOADS, ids=named)
def test_it_satisfies_the_restricted_standard(workload: dict[str, Any]):
    # https://kubernetes.io/docs/concepts/security/pod-security-standards/
    spec = workload["spec"]["template"]["spec"]
    assert not {"hostNetwork", "hostPID", "hostIPC"} & spec.keys()
    allowed = {"configMap", "emptyDir", "persistentVolumeClaim", "projected", "secret"}
    for volume in spec["volumes"]:
        assert len(volume.keys() & allowed) == 1
    security = spec["securityContext"]
    assert security["runAsNonRoot"] is True
    assert security["runAsUser"] > 0
    assert security["runAsGroup"] == security["fsGroup"] > 0  # never the group root
    assert not security.get("supplementalGroups")
    assert security["seccompProfile"] == {"type": "RuntimeDefault"}
    for container in containers(workload):
        assert container["securityContext"]["allowPrivilegeEscalation"] is False
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        assert "privileged" not in container["securityContext"]
        assert not [p for p in container["ports"] if "hostPort" in p]


@pytest.mark.parametrize("workload", WORKLOADS, ids=named)
def test_it_keeps_our_own_rules(workload: dict[str, Any]):
    spec = workload["spec"]["template"]["spec"]
    assert spec["automountServiceAccountToken"] is False
    assert spec["enableServiceLinks"] is False
    for volume in spec["volumes"]:
        assert "emptyDir" not in volume or volume["emptyDir"]["sizeLimit"]
    # Walking a whole volume at each start takes long, and widens modes that PostgreSQL refuses.
    assert spec["securityContext"]["fsGroupChangePolicy"] == "OnRootMismatch"
    for container in containers(workload):
        # Images that were loaded into a cluster's nodes cannot be pulled.
        assert container["imagePullPolicy"] == "IfNotPresent"
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
        assert {"cpu", "memory"} <= container["resources"]["requests"].keys()
        assert "memory" in container["resources"]["limits"]
        assert {"startupProbe", "livenessProbe", "readinessProbe"} <= container.keys()


@pytest.mark.parametrize("workload", WORKLOADS, ids=named)
def test_probes_are_patient_at_the_start_and_quick_to_take_traffic_away(workload: dict[str, Any]):
    (container,) = containers(workload)
    startup, liveness, readiness = (
        container[f"{kind}Probe"] for kind in ("startup", "liveness", "readiness")
    )

    def seconds(probe: dict[str, Any]) -> int:
        return probe["periodSeconds"] * probe["failureThreshold"]

    # A database is created within the startup probe's time, a service only imports.
    assert seconds(startup) >= (120 if workload["kind"] == "StatefulSet" else 60)
    assert startup["periodSeconds"] <= 2  # a start is not waited for longer than it takes
    # One slow answer restarts nothing, and a dead process goes within a minute.
    assert liveness["failureThreshold"] >= 3
    assert 30 <= seconds(liveness) <= 60
    # One slow answer empties no Service, and two in a row do within ten seconds.
    assert readiness["failureThreshold"] == 2
    assert seconds(readiness) <= 10
    for probe in (startup, liveness, readiness):
        assert 2 <= probe["timeoutSeconds"] <= 5


def test_each_object_is_there_once():
    seen = [named(manifest) for manifest in MANIFESTS]
    assert len(seen) == len(set(seen))


def test_namespaces_enforce_the_restricted_standard():
    namespaces = [m for m in MANIFESTS if m["kind"] == "Namespace"]
    assert {m["metadata"]["name"] for m in namespaces} == {"acme", "globex", "demo"}
    for namespace in namespaces:
        labels = namespace["metadata"]["labels"]
        assert labels["pod-security.kubernetes.io/enforce"] == "restricted"
        assert labels["pod-security.kubernetes.io/enforce-version"] == "latest"
