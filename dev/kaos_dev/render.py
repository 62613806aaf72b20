"""Renders a stack without an engine: what `pulumi up` would create, as Kubernetes manifests.

The program in `infra/` runs unchanged on the stack's file; a recording monitor stands where the
engine's would. The demo starts its processes from the result, so that it exercises the same chain
as a cluster does.
"""

import json
import runpy
import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import yaml

from kaos_dev import kubelet
from kaos_dev.kubelet import loopback
from kaos_dev.recording import Recording, Secret, record

__all__ = ["RenderError", "Rendered", "loopback", "render"]

REPOSITORY = Path(__file__).resolve().parents[2]


class RenderError(Exception):
    """A stack that cannot be rendered, with the remedy."""


@dataclass(frozen=True)
class Rendered:
    """What the program would create."""

    recording: Recording

    def manifests(self) -> list[dict[str, Any]]:
        """Return the Kubernetes objects in the order of their registration.

        Secrets stand in plain, and objects without a name have the one that they were given.
        """
        return [
            _revealed({**resource.inputs, "metadata": resource.outputs.get("metadata", {})})
            for resource in self.recording.resources
            if resource.type.startswith("kubernetes:")
        ]

    def manifest(self, kind: str, name: str, namespace: str | None = None) -> dict[str, Any]:
        """Return one object; the namespace may be left out where the name is unique.

        Raises:
            RenderError: there is none, or more than one.
        """
        found = [
            manifest
            for manifest in self.manifests()
            if (manifest["kind"], manifest["metadata"].get("name")) == (kind, name)
            and namespace in (None, manifest["metadata"].get("namespace"))
        ]
        if len(found) != 1:
            names = ", ".join(
                f"{m['metadata'].get('namespace')}/{m['metadata'].get('name')}"
                for m in self.manifests()
                if m["kind"] == kind
            )
            wanted = f"{kind} {namespace or '*'}/{name}"
            raise RenderError(f"{len(found)} objects match {wanted}; there are: {names}")
        return found[0]

    def container_environment(
        self, deployment: str, namespace: str | None = None
    ) -> dict[str, str]:
        """Return the exact environment that a kubelet would give the Deployment's container."""
        workload = self.manifest("Deployment", deployment, namespace)
        return kubelet.container_environment(workload, list(self.manifests()))


def render(
    stack_file: str | Path,
    config: Mapping[str, str] | None = None,
    *,
    preview: bool = False,
    repository: Path = REPOSITORY,
    into: Recording | None = None,
) -> Rendered:
    """Run the program on a stack's file and return what it would create.

    Args:
        stack_file: `stacks/Pulumi.<stack>.yaml`, relative to the repository.
        config: values that override the file's, by key without the project's name. Keys that
            `Pulumi.yaml` does not declare are the stack's secrets.
        preview: run as a preview, where generated values are unknown.
        repository: where `Pulumi.yaml` stands.
        into: filled even when the program raises.

    Raises:
        RenderError: the file holds an encrypted value that `config` does not give.
        Exception: whatever the program raises.
    """
    project = _yaml(repository / "Pulumi.yaml")
    path = repository / stack_file
    overrides = dict(config or {})
    values, secrets = _configuration(project, _yaml(path), overrides)
    folder = repository / project["main"]

    def program() -> None:
        with _importable(folder):
            runpy.run_path(str(folder), run_name="__main__")

    recording = record(
        program,
        preview=preview,
        project=project["name"],
        stack=path.name.removeprefix("Pulumi.").removesuffix(".yaml"),
        config=values,
        secrets=secrets,
        into=into,
    )
    return Rendered(recording)


def _configuration(
    project: dict[str, Any], stack: dict[str, Any], overrides: dict[str, str]
) -> tuple[dict[str, str], list[str]]:
    """Return the values by full key as the engine passes them, and the secret ones' keys."""
    name = project["name"]
    declared = cast("dict[str, Any]", project.get("config", {}))
    given: dict[str, Any] = {
        _full(name, key): entry.get("value", entry.get("default"))
        for key, entry in declared.items()
        if isinstance(entry, dict) and {"value", "default"} & entry.keys()
    }
    given |= {_full(name, key): value for key, value in stack.get("config", {}).items()}
    given |= {_full(name, key): value for key, value in overrides.items()}
    secrets = [_full(name, key) for key in overrides if key not in declared]
    locked = sorted(key for key, value in given.items() if _encrypted(value))
    if locked:
        raise RenderError(f"{', '.join(locked)} is encrypted; pass the value in `config`")
    return {key: _text(value) for key, value in given.items()}, secrets


def _text(value: object) -> str:
    """Return a value as the engine passes it; a key without a value is empty."""
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value)


def _encrypted(value: object) -> bool:
    return isinstance(value, dict) and list(cast("dict[str, Any]", value)) == ["secure"]


def _full(project: str, key: str) -> str:
    return key if ":" in key else f"{project}:{key}"


def _yaml(path: Path) -> dict[str, Any]:
    return cast("dict[str, Any]", yaml.safe_load(path.read_text())) or {}


def _revealed(value: Any) -> Any:
    if isinstance(value, Secret):
        return _revealed(value.value)
    if isinstance(value, Mapping):
        return {k: _revealed(v) for k, v in cast("Mapping[str, Any]", value).items()}
    if isinstance(value, list):
        return [_revealed(item) for item in cast("list[Any]", value)]
    return value


@contextmanager
def _importable(folder: Path) -> Generator[None]:
    """Let the program import its own modules, as the language host does."""
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))
