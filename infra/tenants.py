"""Builds the tenants of a stack: namespaces, databases, model endpoints and stores."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pulumi
import pulumi_kubernetes as k8s
import pulumi_random as random

from pulumi_kaos import (
    DevPostgres,
    DevPostgresArgs,
    MemoryStore,
    MemoryStoreArgs,
    ModelAPI,
    ModelApiArgs,
    dev_postgres_problems,
    memory_store_problems,
    model_api_problems,
)
from stack_config import Database, ModelApi, StackConfig, StackError, Store

_POD_SECURITY = "pod-security.kubernetes.io"
_DSN_ENTRY = "dsn"


@dataclass(frozen=True)
class Tenant:
    """A namespace and what its stores share."""

    name: pulumi.Output[str]
    """Name of the namespace, known when it is there: whatever lives in it depends on it."""
    database: DevPostgres | None
    apis: Mapping[str, ModelAPI]


def check_components(stack: StackConfig, config: pulumi.Config) -> None:
    """Check what the components will be given before the first one is built.

    Raises:
        StackError: with the problems of every component that a store uses.
    """
    problems: list[str] = []
    for store in stack.stores:
        # The Secrets get their names later; these stand for them.
        secret = {"name": "unknown", "key": "unknown"}
        apis = {
            name: {"endpoint": api.endpoint, "secret_name": "unknown", "secret_key": "unknown"}
            for name, api in stack.model_apis.items()
        }
        connection = store.database.connection_secret
        named = connection.model_dump() if connection is not None else secret
        arguments = _store_arguments(stack, store, store.namespace, named, apis)
        problems += memory_store_problems(_full_name(store.namespace, store.name), arguments)
        if store.database.dev_postgres is not None:
            database = _database_arguments(stack, store.namespace, store.database)
            problems += dev_postgres_problems(store.namespace, database)
        for name in _apis_of(store):
            entry = stack.model_apis[name]
            key = config.get(entry.api_key_from) if entry.api_key_from else None
            api = _api_arguments(store.namespace, entry, key)
            problems += model_api_problems(_full_name(store.namespace, name), api)
    if problems:
        raise StackError(list(dict.fromkeys(problems)))


def build(stack: StackConfig, config: pulumi.Config) -> None:
    """Create everything and export the stores' endpoints and states."""
    path = stack.kubernetes.kubeconfig
    cluster = k8s.Provider(
        "cluster",
        kubeconfig=str(Path(path).expanduser()) if path else None,
        context=stack.kubernetes.context,
    )
    providers: list[pulumi.ProviderResource] = [cluster, random.Provider("random")]
    tenants = {name: _tenant(stack, config, name, providers) for name in stack.namespaces}
    exported: dict[str, Any] = {}
    for store in stack.stores:
        memory = _store(stack, config, store, tenants[store.namespace], providers)
        exported[f"{store.namespace}/{store.name}"] = {
            "endpoint": memory.endpoint,
            "ready": memory.ready,
            "phase": memory.phase,
            "message": memory.message,
        }
    pulumi.export("stores", exported)


def _tenant(
    stack: StackConfig,
    config: pulumi.Config,
    name: str,
    providers: list[pulumi.ProviderResource],
) -> Tenant:
    # A namespace takes its volumes with it, so that it must be as hard to delete as they are.
    retain = stack.deletion_policy == "retain"
    namespace = k8s.core.v1.Namespace(
        name,
        metadata=k8s.meta.v1.ObjectMetaArgs(
            name=name,
            labels={
                f"{_POD_SECURITY}/enforce": "restricted",
                f"{_POD_SECURITY}/enforce-version": "latest",
            },
        ),
        opts=pulumi.ResourceOptions(provider=providers[0], protect=retain, retain_on_delete=retain),
    )
    opts = pulumi.ResourceOptions(providers=providers)
    created = namespace.metadata.apply(lambda it: it.name or "")
    stores = [store for store in stack.stores if store.namespace == name]
    database = next((s.database for s in stores if s.database.dev_postgres is not None), None)
    postgres = None
    if database is not None:
        arguments = _database_arguments(stack, created, database)
        postgres = DevPostgres(name, cast("DevPostgresArgs", arguments), opts)
    apis: dict[str, ModelAPI] = {}
    for api in dict.fromkeys(api for store in stores for api in _apis_of(store)):
        entry = stack.model_apis[api]
        key = config.require_secret(entry.api_key_from) if entry.api_key_from else None
        arguments = cast("ModelApiArgs", _api_arguments(created, entry, key))
        apis[api] = ModelAPI(_full_name(name, api), arguments, opts)
    return Tenant(created, postgres, apis)


def _store(
    stack: StackConfig,
    config: pulumi.Config,
    store: Store,
    tenant: Tenant,
    providers: list[pulumi.ProviderResource],
) -> MemoryStore:
    connection = _connection(config, store, tenant, providers)
    apis = {name: cast("Mapping[str, Any]", api.reference) for name, api in tenant.apis.items()}
    return MemoryStore(
        _full_name(store.namespace, store.name),
        cast("MemoryStoreArgs", _store_arguments(stack, store, tenant.name, connection, apis)),
        pulumi.ResourceOptions(providers=providers),
    )


def _connection(
    config: pulumi.Config,
    store: Store,
    tenant: Tenant,
    providers: list[pulumi.ProviderResource],
) -> Mapping[str, Any]:
    """Return the reference to the Secret with the store's DSN."""
    if store.database.dev_postgres is not None and tenant.database is not None:
        return cast("Mapping[str, Any]", tenant.database.reference)
    if store.database.connection_secret is not None:
        return store.database.connection_secret.model_dump()
    secret = k8s.core.v1.Secret(
        f"{_full_name(store.namespace, store.name)}-dsn",
        metadata=k8s.meta.v1.ObjectMetaArgs(namespace=tenant.name),
        string_data={_DSN_ENTRY: config.require_secret(store.database.dsn_from or "")},
        # Another DSN is another Secret with another name, which restarts the pods.
        immutable=True,
        opts=pulumi.ResourceOptions(provider=providers[0]),
    )
    return {"name": secret.metadata.apply(lambda it: it.name or ""), "key": _DSN_ENTRY}


def _store_arguments(
    stack: StackConfig,
    store: Store,
    namespace: pulumi.Input[str],
    connection: Mapping[str, Any],
    apis: Mapping[str, Mapping[str, Any]],
) -> dict[str, Any]:
    models = store.models.given()
    storage = store.arguments.get("storage")
    storage = {} if storage is None else storage
    if isinstance(storage, Mapping):  # else the component says what is wrong with it
        external = storage.get("external")
        if isinstance(external, Mapping | None):
            external = {**store.external, "connection_secret_ref": connection}
        storage = {"type": "external", **storage, "external": external}
    return {
        "image": stack.image,
        **store.arguments,
        "name": store.name,
        "namespace": namespace,
        "storage": storage,
        "models": {
            role: {"model_api": apis[model.model_api], "model": model.model}
            for role, model in models.items()
        },
    }


def _database_arguments(
    stack: StackConfig, namespace: pulumi.Input[str], database: Database
) -> dict[str, Any]:
    image = {"image": stack.postgres_image} if stack.postgres_image else {}
    policy = {"namespace": namespace, "deletion_policy": stack.deletion_policy}
    return {**image, **(database.dev_postgres or {}), **policy}


def _api_arguments(
    namespace: pulumi.Input[str], api: ModelApi, key: pulumi.Input[str] | None
) -> dict[str, Any]:
    external: dict[str, Any] = {"endpoint": api.endpoint}
    if api.api_key_from is not None:
        external["api_key"] = key
    if api.secret_ref is not None:
        external["secret_ref"] = api.secret_ref.model_dump()
    return {"namespace": namespace, "mode": "external", "external": external}


def _apis_of(store: Store) -> list[str]:
    """Return the endpoints that a store uses, each once."""
    return list(dict.fromkeys(model.model_api for model in store.models.given().values()))


def _full_name(namespace: str, name: str) -> str:
    """Name what belongs to a namespace. Neither part holds a dot, so that no two are alike."""
    return f"{namespace}.{name}"
