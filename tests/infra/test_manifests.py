"""The rendered objects: valid for Kubernetes, fit for Pod Security "restricted"."""

from collections.abc import Iterator
from typing import Any

import kubernetes_validate
import pytest

from .samples import demo, dev

MANIFESTS = [*dev().manifests(), *demo().manifests()]
WORKLOADS = [m for m in MANIFESTS if m["kind"] in ("Deployment", "StatefulSet")]


def named(manifest: dict[str, Any]) -> str:
    metadata = manifest["metadata"]
    return f"{manifest['kind']}-{metadata.get('namespace', '')}-{metadata['name']}"


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
    for container in containers(workload):
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
        assert {"cpu", "memory"} <= container["resources"]["requests"].keys()
        assert "memory" in container["resources"]["limits"]
        assert {"startupProbe", "livenessProbe", "readinessProbe"} <= container.keys()


def test_each_object_is_there_once():
    seen = [named(manifest) for manifest in MANIFESTS]
    assert len(seen) == len(set(seen))


def test_namespaces_enforce_the_restricted_standard():
    namespaces = [m for m in MANIFESTS if m["kind"] == "Namespace"]
    assert {m["metadata"]["name"] for m in namespaces} == {"acme", "globex", "demo"}
    for namespace in namespaces:
        labels = namespace["metadata"]["labels"]
        assert labels["pod-security.kubernetes.io/enforce"] == "restricted"
