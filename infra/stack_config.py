"""A stack's configuration: what it may say. `stack_reading` reads and checks it."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self, cast

import pulumi
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, field_validator, model_validator

_COLLECTION = "KAOS_MEMORY_EXTERNAL_COLLECTION"


class StackError(pulumi.RunError):
    """A configuration that breaks rules: one sentence for each, naming key, rule and remedy.

    Pulumi shows a RunError without a traceback.
    """

    def __init__(self, problems: list[str]) -> None:
        self.problems = problems
        super().__init__("\n".join(problems))


def _of_this_stack(key: str) -> str:
    if ":" in key:
        raise ValueError("is a key of this project; write it without a colon")
    return key


Key = Annotated[str, AfterValidator(_of_this_stack)]
"""Name of one of the stack's secrets; see `pulumi config set --secret`."""


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
    api_key_from: Key | None = None
    """The stack's secret that holds the key."""
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
    dsn_from: Key | None = None
    """The stack's secret that holds the DSN."""

    @field_validator("dev_postgres")
    @classmethod
    def _stacks_own(cls, given: dict[str, Any] | None) -> dict[str, Any] | None:
        # Silently overwritten, `deletion_policy: retain` would promise what nobody keeps.
        sources = {"namespace": "the store's namespace", "deletion_policy": "kaos:deletion_policy"}
        for key, source in sources.items():
            if key in (given or {}):
                raise ValueError(f"{key} comes from {source}; remove it here")
        return given

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        given = [name for name in type(self).model_fields if getattr(self, name) is not None]
        if len(given) != 1:
            names = ", ".join(type(self).model_fields)
            raise ValueError(f"give exactly one of {names}, not {len(given)}")
        return self


class StoreModel(_Entry):
    """A model of one of the two roles."""

    model_api: str
    """Name of an entry of `model_apis`."""
    model: str


class StoreModels(_Entry):
    """The models of a store."""

    summarization: StoreModel
    embedding: StoreModel
    rerank: StoreModel | None = None

    def given(self) -> dict[str, StoreModel]:
        """Return the models that are given, by role."""
        named = {role: getattr(self, role) for role in type(self).model_fields}
        return {role: model for role, model in named.items() if model is not None}


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
        storage = self.arguments.get("storage")
        external = storage.get("external") if isinstance(storage, Mapping) else None
        return cast("Mapping[str, Any]", external) if isinstance(external, Mapping) else {}

    @property
    def collection(self) -> str:
        """The schema it uses in its database, as the service will see it: `container.env` wins."""
        return self._variable(_COLLECTION) or str(self.external.get("collection") or "kaos_memory")

    def _variable(self, name: str) -> str | None:
        """Return what `container.env` sets; what is malformed there the component refuses."""
        container = self.arguments.get("container")
        entries = container.get("env") if isinstance(container, Mapping) else None
        for entry in cast("list[Any]", entries) if isinstance(entries, list) else []:
            if isinstance(entry, Mapping) and entry.get("name") == name:
                value = entry.get("value")
                return value if isinstance(value, str) else None
        return None


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
