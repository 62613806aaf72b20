"""The model endpoint of the tested stores: the deterministic server, as anybody's endpoint."""

from typing import Any

from tests.e2e import target

NAMESPACE = "kaos-e2e-models"
ENDPOINT = f"http://models.{NAMESPACE}.svc.cluster.local:8000/v1"


def deploy(image: str, key: str) -> None:
    """Run the server, which asks for this key, in a namespace of its own."""
    target.apply(*_manifests(image, key))
    target.kubectl("-n", NAMESPACE, "rollout", "restart", "deployment/models")
    target.kubectl("-n", NAMESPACE, "rollout", "status", "deployment/models", "--timeout=120s")


def remove() -> None:
    """Remove it and wait until it is gone."""
    target.kubectl("delete", "namespace", NAMESPACE, "--ignore-not-found", "--wait=true")


def _manifests(image: str, key: str) -> list[dict[str, Any]]:
    named = {"namespace": NAMESPACE, "name": "models"}
    labels = {"app": "models"}
    container = {
        "name": "models",
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "env": [
            {
                "name": "MODEL_SERVER_API_KEY",
                "valueFrom": {"secretKeyRef": {"name": "models", "key": "key"}},
            }
        ],
        "ports": [{"name": "http", "containerPort": 8000}],
        "readinessProbe": {"httpGet": {"path": "/healthz", "port": "http"}, "periodSeconds": 1},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
    }
    pod = {
        "automountServiceAccountToken": False,
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [container],
    }
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}},
        {"apiVersion": "v1", "kind": "Secret", "metadata": named, "stringData": {"key": key}},
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": named,
            "spec": {
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": pod},
            },
        },
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": named,
            "spec": {"selector": labels, "ports": [{"port": 8000, "targetPort": "http"}]},
        },
    ]
