"""Every setting of a memory store: its name, default and bounds.

Fields, defaults and rules follow the MemoryStore resource (`docs/settings.md`); the groups
`ranking`, `retention`, `telemetry`, `server`, `auth` and `store` are ours.
"""

import ipaddress
import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    StringConstraints,
    model_validator,
)

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
Weight = Annotated[float, BeforeValidator(_not_boolean), Field(ge=0, le=10)]
Days = Annotated[Whole, Field(ge=0, le=36_500)]


class Settings(BaseModel):
    """A group of settings: unknown names are refused, values never change, input is not echoed."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, allow_inf_nan=False, hide_input_in_errors=True
    )


class LocalStorage(Settings):
    """SQLite and Chroma in one directory, for one process."""

    provider: Annotated[Literal["chroma"], Env("LOCAL_PROVIDER")] = "chroma"
    path: Annotated[str, Env("LOCAL_PATH"), StringConstraints(min_length=1, max_length=1_024)] = (
        "kaos-memory"
    )
    """The directory, which is made where it is not there yet."""
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

    type: Literal["local", "external"] = "local"
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


_LAPTOP = "http://127.0.0.1:11434/v1"
"""Where Ollama listens: external storage does not accept this default."""


class Models(Settings):
    """The models of the roles; each may have an endpoint of its own."""

    summarization: Model = Model(base_url=_LAPTOP, model="llama3.2")
    """Writes digests and extracts facts."""
    embedding: Model = Model(base_url=_LAPTOP, model="nomic-embed-text")
    """Embeds facts and queries."""
    rerank: Model | None = None
    """Orders recalled facts where `long_term.rerank` is true; unset: the embedding endpoint."""


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
    idle_seconds: Annotated[Whole, Field(ge=1, le=604_800)] = 600
    """Without a new turn for so long a session is extracted; its turns stay in the window."""
    daily_token_budget: Annotated[Whole, Field(ge=0, le=1_000_000_000_000)] = 0
    """Model tokens that background work of the whole store may take in a day (UTC); above it
    extraction waits for the next day. 0: no limit."""


class Ranking(Settings):
    """How recalled facts are ordered. The defaults were measured on real conversations.

    A fact's score is BM25 over its words and its neighbours' turns, divided by the greatest, plus
    the weighted parts below.
    """

    bm25_k1: Weight = 0.9
    bm25_b: Annotated[float, BeforeValidator(_not_boolean), Field(ge=0, le=1)] = 0.2
    previous_weight: Weight = 0.5
    """How much the words of the turn before a fact's turn count as its own."""
    second_previous_weight: Weight = 0.25
    next_weight: Weight = 0.3
    second_next_weight: Weight = 0.15
    date_weight: Weight = 0.5
    """How much the day, month and year of a fact count as its words."""
    cosine_weight: Weight = 0.14
    """Of the cosine similarity, in standard deviations over the owner's facts."""
    speaker_weight: Weight = 0.22
    """Where the query names the fact's speaker alone; half of it where it names none or several."""
    question_penalty: Weight = 0.06
    """Where the fact holds a question mark."""
    closing_question_penalty: Weight = 0.17
    """Where it ends with one."""
    time_weight: Weight = 0.12
    """Where the fact holds a word of time."""
    length_weight: Weight = 0.12
    """Of ln(1 + words of the fact)."""


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
    """Whether an endpoint orders the best facts anew."""
    exact_search_limit: Annotated[Whole, Field(ge=1, le=1_000_000)] = 10_000
    """Facts of one recall up to which all are compared; above it an index finds candidates."""
    extraction: Extraction = Extraction()
    ranking: Ranking = Ranking()


class Retention(Settings):
    """How long records are kept. 0: for ever."""

    facts_days: Days = 0
    """After a fact was made or said again for the last time."""
    digests_days: Days = 0
    """After a digest was made; the latest of a session always stays."""
    receipts_days: Days = 0
    """Receipts of erasures."""
    idempotency_hours: Annotated[Whole, Field(ge=1, le=720)] = 24
    """Within which a write with the same `Idempotency-Key` is answered as the first one."""


class Telemetry(Settings):
    """Metrics. Traces and metrics by OTLP follow OpenTelemetry's own variables `OTEL_*`."""

    metrics_port: Annotated[Whole, Field(ge=0, le=65_535)] = 9_464
    """Port of `/metrics`, on the address of the service. 0: none."""


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
    storage: Storage = Storage()
    models: Models = Models()
    short_term: ShortTerm = ShortTerm()
    medium_term: MediumTerm = MediumTerm()
    long_term: LongTerm = LongTerm()
    request_concurrency: Annotated[Whole, Field(ge=1, le=256)] = 8
    """Reads in work at once, per replica, and as many changes; more wait, then get 503."""
    default_failure_mode: FailureMode = FailureMode.SOFT
    max_read_scope: MaxReadScope = MaxReadScope.AGENT
    retention: Retention = Retention()
    telemetry: Telemetry = Telemetry()
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
    def _models_are_meant(self) -> Self:
        missing = {"summarization", "embedding"} - self.models.model_fields_set
        if self.storage.type == "external" and missing:
            raise ValueError(
                f"models.{min(missing)} is required with storage.type external but not given; "
                "set its base_url and model"
            )
        return self

    @model_validator(mode="after")
    def _one_port_each(self) -> Self:
        if self.telemetry.metrics_port == self.server.port:
            raise ValueError(
                f"telemetry.metrics_port and server.port are both {self.server.port}; "
                "change one of them"
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
