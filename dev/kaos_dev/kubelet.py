"""Gives the environment of a container as the kubelet would, from rendered manifests."""

import base64
import re
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit, urlunsplit

Manifest = Mapping[str, Any]


class MissingObjectError(LookupError):
    """A manifest refers to an object that is not there."""


def container_environment(workload: Manifest, manifests: Sequence[Manifest]) -> dict[str, str]:
    """Return the variables of the workload's first container, in their order.

    References to Secrets are resolved from the manifests of the same namespace, `$(NAME)` and
    `$$` are expanded.

    Raises:
        MissingObjectError: a Secret or its entry is not among the manifests.
    """
    namespace = workload["metadata"].get("namespace")
    container = workload["spec"]["template"]["spec"]["containers"][0]
    environment: dict[str, str] = {}
    for variable in container.get("env", []):
        source = variable.get("valueFrom")
        if source is None:
            text = expanded(variable.get("value", ""), environment)
        else:
            text = _secret_entry(source["secretKeyRef"], namespace, manifests)
        environment[variable["name"]] = text
    return environment


def _secret_entry(reference: Manifest, namespace: str, manifests: Sequence[Manifest]) -> str:
    name, key = reference["name"], reference["key"]
    for manifest in manifests:
        metadata = manifest.get("metadata", {})
        here = metadata.get("name") == name and metadata.get("namespace") == namespace
        if manifest["kind"] != "Secret" or not here:
            continue
        if key in manifest.get("stringData", {}):
            return manifest["stringData"][key]
        if key in manifest.get("data", {}):
            return base64.b64decode(manifest["data"][key]).decode()
        raise MissingObjectError(f"Secret {namespace}/{name} has no entry {key}")
    raise MissingObjectError(f"There is no Secret {namespace}/{name}, which a container refers to")


def expanded(text: str, environment: Mapping[str, str]) -> str:
    """Expand `$(NAME)` by earlier variables and `$$` to `$`, by Kubernetes' rules."""

    def replacement(found: re.Match[str]) -> str:
        if found.group() == "$$":
            return "$"
        return environment.get(found.group(1), found.group())

    return re.sub(r"\$\$|\$\(([^)]*)\)", replacement, text)


def loopback(environment: Mapping[str, str], hosts: Mapping[str, str]) -> dict[str, str]:
    """Return the environment with the hosts of its URLs replaced.

    `hosts` maps a host of the cluster, or `host:port`, to an address, or `address:port`, outside;
    without a port the URL's own stays.
    """
    return {name: _relocated(value, hosts) for name, value in environment.items()}


def _relocated(value: str, hosts: Mapping[str, str]) -> str:
    if not re.match(r"[a-z][a-z0-9+.-]*://", value):
        return value
    url = urlsplit(value)
    login, at, address = url.netloc.rpartition("@")
    host, colon, port = address.partition(":")
    target = hosts.get(address, hosts.get(host))
    if target is None:
        return value
    kept = target if ":" in target else f"{target}{colon}{port}"
    return urlunsplit(url._replace(netloc=f"{login}{at}{kept}"))
