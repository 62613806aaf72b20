"""What a MemoryStore is to be: its arguments, checked and frozen, before any resource exists."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pulumi

from pulumi_kaos import _rules as rules
from pulumi_kaos._arguments import ArgumentsError, checked_later, read, without_echoes
from pulumi_kaos._environment import Variable, variable_name
from pulumi_kaos._memory_store_args import MemoryStoreArgs
from pulumi_kaos._memory_store_settings import merged, nested, roles, settings_problems
from pulumi_kaos._settings import ServiceSettings, to_environment

KIND = "MemoryStore"
PREFIX = "memorystore-"
"""Stands before the store's name in every object of it, as in KAOS's own endpoint."""
MEM0_DIR = "/mem0"
"""Where Mem0 writes at import; beside /tmp the only writable folder."""

_MOST_REPLICAS = 100
"""Each holds connections to one database; far fewer exhaust it."""
_DEFAULT_REQUESTS = {"cpu": "100m", "memory": "256Mi"}
# Idle the service holds about 190 MB, 110 of them for Mem0; the rest is room for large writes.
_DEFAULT_LIMITS = {"memory": "768Mi"}


@dataclass(frozen=True)
class MemoryStoreSpec:
    """A checked store. Numbers and topology are plain; names and endpoints may be outputs."""

    name: str
    namespace: pulumi.Input[str]
    image: pulumi.Input[str]
    replicas: int
    environment: tuple[Variable, ...]
    settings: ServiceSettings
    """What the service will read, with stand-ins for secrets and unknown values."""
    requests: Mapping[str, str]
    limits: Mapping[str, str]
    rollout_token: pulumi.Input[str] | None

    @property
    def full_name(self) -> str:
        """Name of the Deployment, the Service and all else that belongs to the store."""
        return PREFIX + self.name


def memory_store_spec(resource: str, args: Mapping[str, Any]) -> MemoryStoreSpec:
    """Check the arguments of a store.

    Raises:
        ArgumentsError: with every problem that can be told before outputs are known.
    """
    problems: list[str] = []
    given = read(args, MemoryStoreArgs, problems)
    given.setdefault("name", resource)
    problems += without_echoes(problems, _problems(given))
    if problems:
        raise ArgumentsError(KIND, resource, problems)
    given = checked_later(KIND, resource, given, _problems)
    return MemoryStoreSpec(
        name=given["name"],
        namespace=given["namespace"],
        image=given["image"],
        replicas=given.get("replicas", 2),
        environment=(*_projected(given), *_overrides(given)),
        settings=merged(given, ServiceSettings.model_validate(nested(given))),
        requests=_DEFAULT_REQUESTS | given.get("resources", {}).get("requests", {}),
        limits=_DEFAULT_LIMITS | given.get("resources", {}).get("limits", {}),
        rollout_token=given.get("rollout_token"),
    )


def _problems(given: Mapping[str, Any]) -> list[str]:
    """Return every problem of read arguments; outputs count as sound."""
    storage: Mapping[str, Any] = given.get("storage", {})
    resources: Mapping[str, Any] = given.get("resources", {})
    return [
        *rules.found(
            [
                rules.label("name", given.get("name"), prefix=PREFIX),
                rules.label("namespace", given.get("namespace")),
                rules.image("image", given.get("image")),
                rules.token("rollout_token", given.get("rollout_token")),
            ]
        ),
        *_storage_problems(storage, given.get("replicas")),
        *_model_problems(given.get("models", {})),
        *rules.resources(
            "resources",
            _DEFAULT_REQUESTS | resources.get("requests", {}),
            _DEFAULT_LIMITS | resources.get("limits", {}),
        ),
        *_auth_problems(given),
        *settings_problems(given),
    ]


def _storage_problems(storage: Mapping[str, Any], replicas: int | None) -> list[str]:
    problems: list[str] = []
    kind = storage.get("type")
    if kind == "local":
        problems.append(
            "storage.type is 'local': local storage is not available in this version; use external"
        )
        if replicas is not None and replicas != 1:
            problems.append(f"replicas is {replicas}: must be 1 with local storage; leave it out")
    elif kind is not None:
        problems += rules.found([rules.one_of("storage.type", kind, ["external"])])
        if "external" not in storage:
            problems.append(
                "storage.external is required with type external; "
                "set it with its connection_secret_ref"
            )
        if "local" in storage:
            problems.append("storage.local goes with type local only; remove it")
    if replicas is not None and not 1 <= replicas <= _MOST_REPLICAS:
        problems.append(
            f"replicas is {replicas}: must be 1 to {_MOST_REPLICAS}; leave it out for the default"
        )
    reference = storage.get("external", {}).get("connection_secret_ref", {})
    return problems + rules.secret_reference("storage.external.connection_secret_ref", reference)


def _model_problems(models: Mapping[str, Any]) -> list[str]:
    problems: list[str] = []
    for role in roles(models):
        api: Mapping[str, Any] = models.get(role, {}).get("model_api", {})
        path = f"models.{role}.model_api"
        problems += rules.found(
            [
                rules.endpoint(f"{path}.endpoint", api.get("endpoint")),
                rules.subdomain(f"{path}.secret_name", api.get("secret_name")),
                rules.secret_key(f"{path}.secret_key", api.get("secret_key")),
            ]
        )
        if ("secret_name" in api) != ("secret_key" in api):
            problems.append(f"{path} needs secret_name and secret_key together; give both or none")
    return problems


def _auth_problems(given: Mapping[str, Any]) -> list[str]:
    if "mode" in given.get("auth", {}):
        return []
    problem = (
        "auth.mode is required: this version verifies no callers, so that whoever reaches the "
        "Service can read everything; set auth to {mode: disabled} to accept that"
    )
    return [problem]


def _overrides(given: Mapping[str, Any]) -> list[Variable]:
    entries: list[Mapping[str, Any]] = given.get("container", {}).get("env", [])
    return [
        Variable(e["name"], secret=e["value_from"]["secret_key_ref"])
        if "value_from" in e
        else Variable(e["name"], e["value"])
        for e in entries
    ]


def _projected(given: Mapping[str, Any]) -> list[Variable]:
    """Return the variables of the given fields, without those that `container.env` sets."""
    external = given["storage"]["external"]
    instead: dict[str, Variable] = {}
    dsn = variable_name("storage", "external", "dsn")
    instead[dsn] = Variable(dsn, secret=external["connection_secret_ref"])
    for role in roles(given["models"]):
        api = given["models"][role]["model_api"]
        key, url = (variable_name("models", role, field) for field in ("api_key", "base_url"))
        if "secret_name" in api:
            secret = {"name": api["secret_name"], "key": api["secret_key"]}
            instead[key] = Variable(key, secret=secret)
        if isinstance(api["endpoint"], pulumi.Output):
            instead[url] = Variable(url, api["endpoint"])
    if isinstance(given["namespace"], pulumi.Output):
        store = variable_name("store", "name")
        name = pulumi.Output.concat(given["namespace"], "/", given["name"])
        instead[store] = Variable(store, name)
    settings = ServiceSettings.model_validate(nested(given))
    base = {"MEM0_DIR": MEM0_DIR, **to_environment(settings)}
    taken = {variable.name for variable in _overrides(given)}
    return [
        instead.get(name) or Variable(name, text)
        for name, text in base.items()
        if name not in taken
    ]
