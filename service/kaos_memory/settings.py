"""Every setting of a memory store: its name, default, bounds and environment variable.

This file is the one source for both sides. The Pulumi component projects its arguments onto
environment variables with `to_environment`; the service reads them back with
`from_environment`. It needs pydantic only, because `pulumi_kaos` carries it as a link.

Fields, defaults and rules follow the MemoryStore resource (`docs/settings.md`); the groups
`server`, `auth` and `store` are ours.
"""

import difflib
import ipaddress
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    StringConstraints,
    ValidationError,
    model_validator,
)
from pydantic.fields import FieldInfo

ENV_PREFIX = "KAOS_MEMORY_"
MAX_TOP_K = 100
"""The most facts that one recall can ask for."""


class FailureMode(StrEnum):
    """What a failed write or forget looks like to the caller."""

    SOFT = "soft"
    """Answered with success false and `degraded`; the caller's turn goes on."""
    STRICT = "strict"
    """Answered as an error."""


class MaxReadScope(StrEnum):
    """The widest level that an agent bound to a store may read."""

    SESSION = "session"
    AGENT = "agent"
    USER = "user"


@dataclass(frozen=True)
class Env:
    """Marks a field whose variable is not simply its path: `Env("EXTERNAL_DSN")`."""

    name: str


_HTTP_URL = re.compile(
    r"https?://(\[[0-9a-f:.]+\]|[\w.-]+)(:\d+)?(/[^\s?#\x00]*)?", re.ASCII | re.IGNORECASE
)


def _not_boolean(value: object) -> object:
    if isinstance(value, bool):
        raise ValueError("must be a number, not a boolean")  # noqa: TRY004 - pydantic expects it
    return value


def _http_url(value: str) -> str:
    try:
        port = urlsplit(value).port
    except ValueError:
        port = 0
    if not _HTTP_URL.fullmatch(value):
        port = 0
    if port == 0:
        raise ValueError(
            "must be an http:// or https:// URL with a valid host and port, and without user, "
            "query or fragment"
        )
    return value.rstrip("/")


def _not_reserved(value: str) -> str:
    if value in {"public", "information_schema"} or value.startswith("pg_"):
        raise ValueError("must not be a schema that PostgreSQL has already")
    return value


def _postgres_url(value: SecretStr) -> SecretStr:
    if not re.match(r"postgres(ql)?://\S", value.get_secret_value().strip()):
        raise ValueError("must be a URL postgresql://user:password@host:port/database")
    return SecretStr(value.get_secret_value().strip())


Whole = Annotated[int, BeforeValidator(_not_boolean)]
Name = Annotated[str, StringConstraints(min_length=1, max_length=200, pattern=r"^\S(.*\S)?$")]
Prompt = Annotated[str, StringConstraints(max_length=32_768)]
Url = Annotated[str, StringConstraints(max_length=2_048), AfterValidator(_http_url)]
Collection = Annotated[
    str, StringConstraints(pattern=r"^[a-z][a-z0-9_]{0,39}$"), AfterValidator(_not_reserved)
]
"""Names a PostgreSQL schema and, with suffixes, its roles: lower case, 40 characters at most."""
Dsn = Annotated[SecretStr, AfterValidator(_postgres_url)]


class Settings(BaseModel):
    """A group of settings: unknown names are refused, values never change, input is not echoed."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, allow_inf_nan=False, hide_input_in_errors=True
    )


class LocalStorage(Settings):
    """Chroma and SQLite in one directory, for one replica."""

    provider: Annotated[Literal["chroma"], Env("LOCAL_PROVIDER")] = "chroma"
    path: Annotated[str, Env("LOCAL_PATH"), StringConstraints(min_length=1, max_length=1_024)] = (
        "/data"
    )
    collection: Annotated[Collection, Env("LOCAL_COLLECTION")] = "kaos_memory"


class ExternalStorage(Settings):
    """PostgreSQL with pgvector, shared by all replicas."""

    provider: Annotated[Literal["pgvector"], Env("EXTERNAL_PROVIDER")] = "pgvector"
    dsn: Annotated[Dsn, Env("EXTERNAL_DSN")]
    embedding_dims: Annotated[Whole, Env("EXTERNAL_DIMS"), Field(ge=1, le=4_000)] = 1_536
    """Vector dimensions. pgvector indexes half-precision vectors of up to 4,000."""
    collection: Annotated[Collection, Env("EXTERNAL_COLLECTION")] = "kaos_memory"


class Storage(Settings):
    """Where memory is kept."""

    type: Literal["local", "external"]
    local: LocalStorage | None = None
    external: ExternalStorage | None = None

    @model_validator(mode="after")
    def _one_block(self) -> Self:
        if self.type == "external" and self.external is None:
            raise ValueError("type external needs the external block with its dsn")
        other = "local" if self.type == "external" else "external"
        if getattr(self, other) is not None:
            raise ValueError(f"type {self.type} forbids the {other} block; remove it")
        return self


class Model(Settings):
    """One model behind an OpenAI-compatible endpoint."""

    base_url: Url
    """The endpoint, with its `/v1`."""
    model: Name
    api_key: SecretStr = SecretStr("")


class Models(Settings):
    """The models of the two roles; each may have an endpoint of its own."""

    summarization: Model
    """Writes digests and extracts facts."""
    embedding: Model
    """Embeds facts and queries."""


class ShortTerm(Settings):
    """The verbatim window."""

    token_budget: Annotated[Whole, Field(ge=1, le=1_000_000)] = 4_096
    hard_event_cap: Annotated[Whole, Field(ge=1, le=100_000)] = 2_000
    """The most turns that the window holds, whatever their tokens."""


class MediumTerm(Settings):
    """The rolling digest. Marks of 0 are derived: the token budget, and half of it."""

    enabled: bool = False
    compaction_trigger: Annotated[Whole, Field(ge=0, le=1_000_000)] = 0
    compaction_target: Annotated[Whole, Field(ge=0, le=1_000_000)] = 0
    digest_retention: Annotated[Whole, Field(ge=1, le=1_000)] = 20
    system_prompt: Prompt = ""
    """Replaces the summariser's built-in prompt when not empty."""


class Extraction(Settings):
    """How facts are extracted from turns."""

    concurrency: Annotated[Whole, Field(ge=1, le=64)] = 4
    """Model calls of background work in flight, per replica."""
    max_retries: Annotated[Whole, Field(ge=0, le=20)] = 2
    system_prompt: Prompt = ""
    """Replaces the extraction's built-in prompt when not empty."""


class LongTerm(Settings):
    """Facts: their extraction and recall."""

    enabled: bool = True
    """False: nothing is extracted, and recall returns no facts (which is not degraded)."""
    default_top_k: Annotated[Whole, Field(ge=1, le=MAX_TOP_K)] = 10
    score_threshold: Annotated[float, BeforeValidator(_not_boolean), Field(ge=0, le=1)] | None = (
        None
    )
    """Least cosine similarity of a recalled fact; unset: none is dropped."""
    rerank: bool = False
    extraction: Extraction = Extraction()


class Server(Settings):
    """The listening socket."""

    host: Annotated[str, StringConstraints(min_length=1, max_length=253)] = "127.0.0.1"
    port: Annotated[Whole, Field(ge=1, le=65_535)] = 8_080
    drain_seconds: Annotated[Whole, Field(ge=1, le=600)] = 20
    """Time for running requests and background work to end after SIGTERM."""


class Auth(Settings):
    """How callers prove who they are."""

    mode: Literal["disabled"] | None = None
    """`disabled`: names in the request body are believed. Unset: refused unless on loopback."""


class Store(Settings):
    """Which store this is."""

    name: Name = "default"
    """Recorded in the database, so that a second store cannot share its schema by mistake."""


class ServiceSettings(Settings):
    """All settings of one memory store's service."""

    engine: Literal["mem0"] = "mem0"
    storage: Storage
    models: Models
    short_term: ShortTerm = ShortTerm()
    medium_term: MediumTerm = MediumTerm()
    long_term: LongTerm = LongTerm()
    request_concurrency: Annotated[Whole, Field(ge=1, le=256)] = 8
    """Requests in work at once, per replica; more wait, then get 503."""
    default_failure_mode: FailureMode = FailureMode.SOFT
    max_read_scope: MaxReadScope = MaxReadScope.AGENT
    server: Server = Server()
    auth: Auth = Auth()
    store: Store = Store()

    @model_validator(mode="after")
    def _marks_in_order(self) -> Self:
        if not 0 < self.compaction_target < self.compaction_trigger <= self.short_term.token_budget:
            raise ValueError(
                "medium_term.compaction_target and medium_term.compaction_trigger must satisfy "
                "0 < target < trigger <= short_term.token_budget, but are "
                f"target {self.compaction_target}, trigger {self.compaction_trigger}, "
                f"budget {self.short_term.token_budget}; lower the marks or raise the budget"
            )
        return self

    @model_validator(mode="after")
    def _no_open_door(self) -> Self:
        if self.auth.mode is None and not _is_loopback(self.server.host):
            raise ValueError(
                f"auth.mode must be given when server.host is not loopback ({self.server.host}): "
                "without it anyone who reaches the port is believed; set auth.mode to "
                "'disabled' to allow that, or bind to 127.0.0.1"
            )
        return self

    @property
    def compaction_trigger(self) -> int:
        """Tokens in the window above which compaction starts."""
        return self.medium_term.compaction_trigger or self.short_term.token_budget

    @property
    def compaction_target(self) -> int:
        """Tokens that compaction leaves in the window."""
        return self.medium_term.compaction_target or self.short_term.token_budget // 2


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class SettingsError(ValueError):
    """Settings that break rules. `problems` holds one sentence for each, without secrets."""

    def __init__(self, problems: list[str]) -> None:
        self.problems = problems
        super().__init__("\n".join(problems))


@dataclass(frozen=True)
class Variable:
    """An environment variable and the field that it sets."""

    name: str
    path: tuple[str, ...]
    field: FieldInfo
    secret: bool

    @property
    def dotted(self) -> str:
        """The field's path as messages show it."""
        return ".".join(self.path)


def _group_of(annotation: Any) -> type[Settings] | None:
    candidates = getattr(annotation, "__args__", (annotation,))
    for candidate in candidates:
        if isinstance(candidate, type) and issubclass(candidate, Settings):
            return candidate
    return None


def _walk(group: type[Settings], path: tuple[str, ...]) -> Iterator[Variable]:
    for name, field in group.model_fields.items():
        here = (*path, name)
        inner = _group_of(field.annotation)
        if inner is not None:
            yield from _walk(inner, here)
            continue
        env = next((mark.name for mark in field.metadata if isinstance(mark, Env)), None)
        yield Variable(
            name=ENV_PREFIX + (env or "_".join(here).upper()),
            path=here,
            field=field,
            secret=field.annotation is SecretStr,
        )


VARIABLES: dict[str, Variable] = {
    variable.name: variable for variable in _walk(ServiceSettings, ())
}
"""Every variable that the service knows, by name."""

_SERVICE_LINK = re.compile(
    rf"{ENV_PREFIX}(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT_\d+_(TCP|UDP|SCTP)(_\w+)?)"
)


def _is_service_link(name: str, value: str) -> bool:
    """Whether Kubernetes set this variable because of a Service called `kaos-memory…`."""
    return bool(_SERVICE_LINK.fullmatch(name)) or (
        name.endswith("_PORT") and re.match(r"(tcp|udp|sctp)://", value) is not None
    )


def from_environment(environ: Mapping[str, str]) -> ServiceSettings:
    """Read the settings from variables `KAOS_MEMORY_*`; all others are ignored.

    Raises:
        SettingsError: an unknown variable, or values that break rules; all of them are named.
    """
    nested: dict[str, Any] = {}
    problems: list[str] = []
    for name in sorted(environ):
        if not name.startswith(ENV_PREFIX):
            continue
        variable = VARIABLES.get(name)
        if _is_service_link(name, environ[name]):
            continue
        if variable is not None:
            group = nested
            for part in variable.path[:-1]:
                group = group.setdefault(part, {})
            group[variable.path[-1]] = environ[name]
        else:
            close = difflib.get_close_matches(name, VARIABLES, n=1)
            hint = f"did you mean {close[0]}?" if close else "remove it"
            problems.append(f"{name} is not a setting of this service; {hint}")
    try:
        settings = validate(nested)
    except SettingsError as error:
        raise SettingsError(problems + error.problems) from None
    if problems:
        raise SettingsError(problems)
    return settings


def to_environment(settings: Settings) -> dict[str, str]:
    """Project the fields that were given onto their variables; others project nothing."""
    projected: dict[str, str] = {}
    for variable in VARIABLES.values():
        value: Any = settings
        for part in variable.path:
            if not isinstance(value, Settings) or part not in value.model_fields_set:
                value = None
                break
            value = getattr(value, part)
        if value is not None:
            projected[variable.name] = _text(value)
    return projected


def _text(value: object) -> str:
    if isinstance(value, SecretStr):
        return value.get_secret_value()
    return str(value).lower() if isinstance(value, bool) else str(value)


def validate(nested: Mapping[str, Any]) -> ServiceSettings:
    """Build settings from nested values.

    Raises:
        SettingsError: with every broken rule as field, value, rule and remedy.
    """
    try:
        return ServiceSettings.model_validate(nested)
    except ValidationError as error:
        raise SettingsError(describe(error, nested)) from None


def describe(error: ValidationError, given: Mapping[str, Any]) -> list[str]:
    """Turn pydantic's findings into sentences: field, value, rule, remedy. Secrets stay out."""
    variables = {variable.path: variable for variable in VARIABLES.values()}
    return [_sentence(finding, given, variables) for finding in error.errors()]


def _sentence(
    finding: Any, given: Mapping[str, Any], variables: Mapping[tuple[str, ...], Variable]
) -> str:
    path = tuple(str(part) for part in finding["loc"])
    rule = finding["msg"].removeprefix("Value error, ")
    if not path:
        return rule
    dotted, variable = ".".join(path), variables.get(path)
    if finding["type"] == "missing":
        inside = [v.name for p, v in variables.items() if p[: len(path)] == path]
        return f"{dotted} is required but not given; set it ({', '.join(inside)})"
    if finding["type"] == "extra_forbidden":
        siblings = [p[len(path) - 1] for p in variables if p[: len(path) - 1] == path[:-1]]
        close = difflib.get_close_matches(path[-1], siblings, n=1)
        hint = f"did you mean {close[0]}?" if close else f"known here: {', '.join(siblings)}"
        return f"{dotted} is not a setting; {hint}"
    if variable is None:
        return f"{dotted}: {rule}"
    value: Any = given
    for part in path:
        value = value.get(part) if isinstance(value, Mapping) else None
    shown = "a secret" if variable.secret else _clipped(repr(value))
    return f"{dotted} is {shown}: {rule}; {_remedy(variable)}"


def _clipped(text: str) -> str:
    """A value as messages show it: short, and without a user and password that it may hold."""
    text = re.sub(r"//[^/@\s]*@", "//...@", text)
    return text if len(text) <= 80 else text[:77] + "..."


def _remedy(variable: Variable) -> str:
    if variable.field.is_required():
        return f"correct it ({variable.name})"
    default = variable.field.default
    if isinstance(default, SecretStr) or default is None or default == "":
        return f"correct it or leave it out ({variable.name})"
    return f"correct it or leave it out for the default {_text(default)} ({variable.name})"
