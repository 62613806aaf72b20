"""Runs Pulumi programs without an engine and records every resource that they register.

The monitor stands where the engine's would. It keeps the raw requests, with secrets and unknown
values still marked, and answers as a provider would: with the inputs, the names that Kubernetes
objects get, generated passwords and the status of a settled Deployment.
"""

import asyncio
import contextvars
import hashlib
import json
import threading
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

import pulumi
from google.protobuf import empty_pb2, json_format, struct_pb2
from pulumi.runtime import mocks, settings
from pulumi.runtime.proto import resource_pb2
from pulumi.runtime.rpc import UNKNOWN
from pulumi.runtime.stack import run_in_stack

# The wire format's marks of a secret; see `pulumi.runtime.rpc`, where they are private.
_SIGNATURE = "4dabf18193072939515e22adb298388d"
_SECRET = "1b47061264138c4ac30d75fd1eb44270"  # noqa: S105 - a mark, not a secret

T = TypeVar("T")


@dataclass(frozen=True)
class Secret:
    """A value that the program registered as secret."""

    value: Any


class Unknown:
    """A value that a preview cannot know."""

    def __repr__(self) -> str:
        return "<unknown>"


UNKNOWN_VALUE = Unknown()
"""The only instance of `Unknown`."""


@dataclass(frozen=True)
class Resource:
    """One registered resource, as the engine would have got it."""

    type: str
    name: str
    urn: str
    parent: str
    """URN of the parent; empty for the stack."""
    custom: bool
    """False for components."""
    inputs: Mapping[str, Any]
    """Properties in the wire's names, secrets as `Secret`, unknown values as `UNKNOWN_VALUE`."""
    outputs: Mapping[str, Any]
    """What the monitor answered, in the same form."""
    provider: str
    """URN and id of the explicit provider; empty where the default one would be used."""
    dependencies: tuple[str, ...]
    protect: bool
    retain_on_delete: bool
    delete_before_replace: bool


@dataclass
class Recording:
    """What a program registered, in its order."""

    resources: list[Resource] = field(default_factory=list[Resource])
    outputs: dict[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]])
    """Registered outputs of components and of the stack, by URN."""

    @property
    def exports(self) -> Mapping[str, Any]:
        """Outputs of the stack."""
        return next(
            (found for urn, found in self.outputs.items() if "::pulumi:pulumi:Stack::" in urn), {}
        )

    def of_type(self, token: str) -> list[Resource]:
        """Return the resources of a type such as `kubernetes:core/v1:Secret`."""
        return [resource for resource in self.resources if resource.type == token]


def record(
    program: Callable[[], Awaitable[None] | None],
    *,
    preview: bool = False,
    project: str = "project",
    stack: str = "stack",
    config: Mapping[str, str] | None = None,
    secrets: list[str] | None = None,
    into: Recording | None = None,
) -> Recording:
    """Run a program in preview or update and return what it registered.

    Each call stands alone: it has its own event loop, thread and Pulumi settings, so that one
    process can run many. `config` takes full keys (`project:key`); `secrets` names those of them
    that are secret. `into` is filled even when the program raises.

    Raises:
        Exception: whatever the program raised.
    """
    recording = Recording() if into is None else into
    monitor = _Monitor(recording, preview=preview)

    async def run() -> None:
        # A program's error comes back to the caller; asyncio need not also print what followed.
        asyncio.get_running_loop().set_exception_handler(lambda _loop, _context: None)
        pulumi.runtime.set_all_config(dict(config or {}), secrets or [])
        settings.ROOT.set(None)
        settings.configure(
            mocks.MockSettings(
                monitor=monitor,
                engine=mocks.MockEngine(None),
                project=project,
                stack=stack,
                dry_run=preview,
                callbacks=None,
                organization="organization",
                root_directory=".",
                parallel=None,
                monitor_features=set[int](),
                package_refs=dict[str, str](),
                base_providers_by_ref=dict[str, str](),
                lock=threading.Lock(),
                outputs=set[Any](),
                legacy_apply_enabled=False,
            )
        )
        await run_in_stack(program)

    context = contextvars.copy_context()
    with ThreadPoolExecutor(max_workers=1) as pool:
        pool.submit(context.run, asyncio.run, run()).result()
    return recording


class _Monitor(mocks.MockMonitor):
    def __init__(self, recording: Recording, *, preview: bool) -> None:
        super().__init__(_NoMocks())
        self._recording = recording
        self._preview = preview
        self._lock = threading.Lock()

    def make_urn(self, parent: str, type_: str, name: str) -> str:
        """Name a resource as the engine does: by the types of its parents, the stack left out."""
        types = parent.split("::")[2] if parent else ""
        qualified = f"{types}${type_}" if types not in ("", "pulumi:pulumi:Stack") else type_
        return "::".join(
            [f"urn:pulumi:{pulumi.get_stack()}", pulumi.get_project(), qualified, name]
        )

    def RegisterResource(self, request: Any) -> Any:  # noqa: N802 - the protocol's name
        urn = self.make_urn(request.parent, request.type, request.name)
        inputs = json_format.MessageToDict(request.object)
        answer = _answer(request.type, request.name, inputs, preview=self._preview)
        resource = Resource(
            type=request.type,
            name=request.name,
            urn=urn,
            parent=request.parent,
            custom=request.custom,
            inputs=_marked(inputs),
            outputs=_marked(answer),
            provider=request.provider,
            dependencies=tuple(request.dependencies),
            protect=request.protect,
            retain_on_delete=request.retainOnDelete,
            delete_before_replace=request.deleteBeforeReplace,
        )
        with self._lock:
            if any(other.urn == urn for other in self._recording.resources):
                raise ValueError(f"Duplicate resource URN '{urn}'; give it another name")
            self._recording.resources.append(resource)
        properties = struct_pb2.Struct()
        json_format.ParseDict(answer, properties)
        known = request.custom and not self._preview
        return resource_pb2.RegisterResourceResponse(
            urn=urn, id=f"{request.name}-id" if known else "", object=properties
        )

    def RegisterResourceOutputs(self, request: Any) -> Any:  # noqa: N802 - the protocol's name
        outputs = json_format.MessageToDict(request.outputs)
        with self._lock:
            self._recording.outputs[request.urn] = _marked(outputs)
        return empty_pb2.Empty()


class _NoMocks(mocks.Mocks):
    """The monitor answers by itself; programs here read nothing from a cloud."""

    def new_resource(self, args: mocks.MockResourceArgs) -> tuple[str | None, dict[str, Any]]:
        raise NotImplementedError(f"{args.typ} {args.name} is read, not registered")

    def call(self, args: mocks.MockCallArgs) -> Any:
        raise NotImplementedError(f"{args.token} is invoked")


def _answer(token: str, name: str, inputs: dict[str, Any], *, preview: bool) -> dict[str, Any]:
    """Return a resource's state in wire form."""
    if token == "random:index/randomPassword:RandomPassword":  # noqa: S105 - a type
        return inputs if preview else {**inputs, "result": _secret(_password(name, inputs))}
    if not token.startswith("kubernetes:"):
        return inputs
    answer = dict(inputs)
    given: dict[str, Any] = inputs.get("metadata", {})
    if "name" not in given and "metadata" in inputs:
        content = json.dumps([token, name, inputs], sort_keys=True)
        digest = hashlib.sha256(content.encode()).hexdigest()[:8]
        answer["metadata"] = {**given, "name": f"{name}-{digest}"}
    if token in ("kubernetes:apps/v1:Deployment", "kubernetes:apps/v1:StatefulSet") and not preview:
        replicas = inputs["spec"].get("replicas", 1)
        answer["status"] = {"replicas": replicas, "availableReplicas": replicas}
    return answer


def _password(name: str, inputs: dict[str, Any]) -> str:
    """Return a password that tests can follow, as long and as plain as the real one would be."""
    text = f"TAINT{hashlib.sha512(name.encode()).hexdigest()}"[: int(inputs["length"])]
    return text if inputs.get("special") is False else f"{text[:-4]}@:/%"


def _secret(value: Any) -> dict[str, Any]:
    return {_SIGNATURE: _SECRET, "value": value}


def _marked(value: Any) -> Any:
    """Turn the wire's marks into `Secret` and `Unknown`, and integral floats into integers."""
    if isinstance(value, Mapping):
        mapping = cast("Mapping[str, Any]", value)
        if mapping.get(_SIGNATURE) == _SECRET:
            return Secret(_marked(mapping["value"]))
        return {key: _marked(item) for key, item in mapping.items()}
    if isinstance(value, list):
        return [_marked(item) for item in cast("list[Any]", value)]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return UNKNOWN_VALUE if value == UNKNOWN else value
