"""A stack's configuration: what it may say, and what is wrong with it.

Everything is checked before the first resource, so that a fault in the last store leaves the first
one alone.
"""

from collections.abc import Mapping
from typing import Any, Literal, Self

import pulumi
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator


class StackError(pulumi.RunError):
    """A configuration that breaks rules: one sentence for each, naming key, rule and remedy.

    Pulumi shows a RunError without a traceback.
    """

    def __init__(self, problems: list[str]) -> None:
        self.problems = problems
        super().__init__("\n".join(problems))


class _Entry(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


class Kubernetes(_Entry):
    """The cluster. Left out: the one that kubectl would use."""

    kubeconfig: str | None = None
    """Path of a kubeconfig file. Default: `KUBECONFIG`, else `~/.kube/config`."""
    context: str | None = None
    """Context in it. Default: its current one, which others may switch; better name it."""


class SecretEntry(_Entry):
    """An entry of a Secret that exists in the store's namespace."""

    name: str
    key: str


class ModelApi(_Entry):
    """An endpoint that stores use by its name; each namespace gets a Secret of its own."""

    endpoint: str
    """OpenAI-compatible base URL with its `/v1`."""
    api_key_from: str | None = None
    """Name of the stack's secret that holds the key; see `pulumi config set --secret`."""
    secret_ref: SecretEntry | None = None
    """Instead: a Secret of yours with the key."""

    @model_validator(mode="after")
    def _one_key(self) -> Self:
        if self.api_key_from is not None and self.secret_ref is not None:
            raise ValueError("api_key_from and secret_ref exclude each other; remove one")
        return self


class Database(_Entry):
    """Where a store's database comes from: exactly one of the three."""

    dev_postgres: dict[str, Any] | None = None
    """A database in the namespace, for development; `{}` for defaults, or `size`,
    `storage_class`, `resources`, `image`. The stores of a namespace share it."""
    connection_secret: SecretEntry | None = None
    """A Secret of yours with the DSN."""
    dsn_from: str | None = None
    """Name of the stack's secret that holds the DSN."""

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        given = [name for name in type(self).model_fields if getattr(self, name) is not None]
        if len(given) != 1:
            names = ", ".join(type(self).model_fields)
            raise ValueError(f"give exactly one of {names}, not {len(given)}")
        return self

    @property
    def identity(self) -> str:
        """Tells whether two stores of a namespace share a database."""
        if self.connection_secret is not None:
            return f"Secret {self.connection_secret.name}/{self.connection_secret.key}"
        return f"secret {self.dsn_from}" if self.dsn_from else "dev_postgres"


class StoreModel(_Entry):
    """A model of one of the two roles."""

    model_api: str
    """Name of an entry of `model_apis`."""
    model: str


class StoreModels(_Entry):
    """The models of a store."""

    summarization: StoreModel
    embedding: StoreModel


class Store(BaseModel):
    """A tenant's store. Whatever stands here beside these fields goes to MemoryStore as it is."""

    model_config = ConfigDict(extra="allow", frozen=True, hide_input_in_errors=True)

    name: str
    """Name of the store; its Service is `memorystore-<name>`."""
    namespace: str
    """Namespace of the tenant. It is created."""
    database: Database
    models: StoreModels

    @property
    def arguments(self) -> Mapping[str, Any]:
        """The fields that are MemoryStore's own."""
        return self.__pydantic_extra__ or {}

    @property
    def external(self) -> Mapping[str, Any]:
        """Settings of its external storage, without the connection."""
        storage = self.arguments.get("storage", {})
        return storage.get("external", {}) if isinstance(storage, Mapping) else {}

    @property
    def collection(self) -> str:
        """The schema it uses in its database."""
        return str(self.external.get("collection", "kaos_memory"))


class StackConfig(_Entry):
    """The whole configuration, without the secrets themselves."""

    image: str
    """Image of the memory service; `make image` builds, pushes and pins it here."""
    stores: list[Store] = Field(min_length=1)
    """The tenants' stores."""
    model_apis: dict[str, ModelApi] = Field(min_length=1)
    """The endpoints that stores name in `models`."""
    postgres_image: str | None = None
    """Image of every `dev_postgres`; default: the public pgvector image."""
    deletion_policy: Literal["retain", "delete"] = "retain"
    """`retain` protects namespaces, volumes and passwords from `pulumi destroy`."""
    kubernetes: Kubernetes = Kubernetes()

    @property
    def namespaces(self) -> list[str]:
        """The tenants' namespaces, each once."""
        return list(dict.fromkeys(store.namespace for store in self.stores))

    @property
    def secrets(self) -> dict[str, str]:
        """The stack's secrets that are named somewhere, with what they are for."""
        keys = {
            api.api_key_from: f"the key of model_apis.{name}"
            for name, api in self.model_apis.items()
            if api.api_key_from
        }
        dsns = {
            store.database.dsn_from: f"the DSN of store {store.namespace}/{store.name}"
            for store in self.stores
            if store.database.dsn_from
        }
        return keys | dsns


def read_config(config: pulumi.Config) -> StackConfig:
    """Read and check the stack's configuration.

    Raises:
        StackError: with every problem that can be told without the components.
    """
    given: dict[str, Any] = {}
    problems: list[str] = []
    for key in StackConfig.model_fields:
        text = key in ("image", "postgres_image", "deletion_policy")
        value = (config.get(key) or None) if text else config.get_object(key)
        if value is not None:
            given[key] = value
        if value is not None and pulumi.runtime.is_config_secret(config.full_key(key)):
            problems.append(
                f"{config.full_key(key)} holds a secret, but is read in plain; move the secret to "
                "a key of its own and name that key"
            )
    try:
        stack = StackConfig.model_validate(given)
    except ValidationError as error:
        raise StackError(
            problems + [_sentence(config, found) for found in error.errors()]
        ) from None
    problems += _secret_problems(config, stack) + _cross_problems(config, stack)
    if problems:
        raise StackError(problems)
    return stack


def _sentence(config: pulumi.Config, found: Any) -> str:
    path = ".".join(str(part) for part in found["loc"])
    full = config.full_key(path)
    if path == "image":
        return f"{full} is not set; build, push and pin the image with `make image`"
    if found["type"] == "missing":
        return f"{full} is required but not given; set it in the stack's file"
    if found["type"] == "extra_forbidden":
        return f"{full} is not known here; remove it or correct its name"
    return f"{full}: {found['msg'].removeprefix('Value error, ')}; correct it in the stack's file"


def _secret_problems(config: pulumi.Config, stack: StackConfig) -> list[str]:
    problems: list[str] = []
    for key, purpose in stack.secrets.items():
        full = config.full_key(key)
        command = f"pulumi config set --secret {key} --stack {pulumi.get_stack()}"
        if key in StackConfig.model_fields:
            problems.append(f"{full} cannot hold {purpose}: it is a setting; name another key")
        elif config.get(key) is None:
            problems.append(f"{full}, {purpose}, is not set; set it: {command}")
        elif not pulumi.runtime.is_config_secret(full):
            problems.append(f"{full}, {purpose}, stands in plain in the stack's file; {command}")
    return problems


def _cross_problems(config: pulumi.Config, stack: StackConfig) -> list[str]:
    problems: list[str] = []
    names: dict[tuple[str, str], int] = {}
    schemas: dict[tuple[str, str, str], int] = {}
    databases: dict[str, Mapping[str, Any]] = {}
    for index, store in enumerate(stack.stores):
        here = f"{config.full_key('stores')}.{index}"
        first = names.setdefault((store.namespace, store.name), index)
        if first != index:
            problems.append(f"{here} has the namespace and name of stores.{first}; rename one")
            continue
        schema = (store.namespace, store.database.identity, store.collection)
        first = schemas.setdefault(schema, index)
        if first != index:
            problems.append(
                f"{here} shares its database and collection {store.collection} with "
                f"stores.{first}; give it another storage.external.collection"
            )
        dev = store.database.dev_postgres
        if dev is not None and databases.setdefault(store.namespace, dev) != dev:
            problems.append(
                f"{here}.database.dev_postgres differs from that of an earlier store in "
                f"{store.namespace}, which has one database; make them equal"
            )
        if "connection_secret_ref" in store.external:
            problems.append(
                f"{here}.storage.external.connection_secret_ref is set from database; remove it"
            )
        for role in StoreModels.model_fields:
            api = getattr(store.models, role).model_api
            if api not in stack.model_apis:
                known = ", ".join(stack.model_apis)
                problems.append(
                    f"{here}.models.{role}.model_api is {api!r}, which is not in model_apis "
                    f"({known}); add it or name one of these"
                )
    return problems
