"""The arguments of MemoryStore: the fields of the KAOS MemoryStore resource in snake_case.

Defaults are those of the service and stand in `_settings`; a test holds the texts here to them.
A field that is not given is not projected, so that the service's own default stays in force.
"""

from typing import NotRequired, TypedDict

import pulumi

from pulumi_kaos._references import ModelApiReference, SecretReference


class PersistentVolumeArgs(TypedDict):
    """The volume of a local store."""

    size: NotRequired[str]
    """Size of the volume. Default 5Gi."""


class LocalStorageArgs(TypedDict):
    """Chroma on a volume, for one replica. Not available in this version."""

    provider: NotRequired[str]
    """Vector store. Default chroma, the only one."""
    persistent_volume: NotRequired[PersistentVolumeArgs]
    """The volume that holds the data."""
    collection: NotRequired[str]
    """Name of the collection. Default kaos_memory."""


class ExternalStorageArgs(TypedDict):
    """PostgreSQL with pgvector, shared by all replicas."""

    connection_secret_ref: SecretReference
    """Secret with the DSN, in the store's namespace. It is never read here: the pod gets it by
    reference. After its content changed, change `rollout_token` to restart the pods."""
    provider: NotRequired[str]
    """Vector store. Default pgvector, the only one."""
    embedding_dims: NotRequired[int]
    """Dimensions of the embedding model's vectors, 1 to 4000. Default 1536."""
    collection: NotRequired[str]
    """PostgreSQL schema of this store: two stores in one database need two. Lower-case letters,
    digits and '_', 40 characters at most. Default kaos_memory."""


class StorageArgs(TypedDict):
    """Where memory is kept."""

    type: str
    """`external`. `local` is not available in this version."""
    external: NotRequired[ExternalStorageArgs]
    """Required with type external."""
    local: NotRequired[LocalStorageArgs]
    """Only with type local."""


class ModelArgs(TypedDict):
    """A model and the endpoint that serves it."""

    model_api: ModelApiReference
    """The endpoint, in the store's namespace."""
    model: str
    """Name of the model as the endpoint knows it."""


class ModelsArgs(TypedDict):
    """The models of the two roles; each may have an endpoint of its own."""

    summarization: ModelArgs
    """Writes digests and extracts facts."""
    embedding: ModelArgs
    """Embeds facts and queries; its dimensions are `storage.external.embedding_dims`."""
    rerank: NotRequired[ModelArgs]
    """Orders recalled facts where `long_term.rerank` is true. Omitted: the embedding model."""


class ShortTermArgs(TypedDict):
    """The verbatim window."""

    token_budget: NotRequired[int]
    """Tokens that the window holds, at least 1. Default 4096."""
    hard_event_cap: NotRequired[int]
    """Turns that the window holds, whatever their tokens, at least 1. Default 2000."""


class MediumTermArgs(TypedDict):
    """The rolling digest. After derivation 0 < target < trigger <= token_budget must hold."""

    enabled: NotRequired[bool]
    """Fold what leaves the window into a digest instead of dropping it. Default false."""
    compaction_trigger: NotRequired[int]
    """Tokens above which compaction starts; 0 stands for the token budget. Default 0."""
    compaction_target: NotRequired[int]
    """Tokens that compaction leaves; 0 stands for half the token budget. Default 0."""
    digest_retention: NotRequired[int]
    """Digest versions kept, at least 1. Default 20."""
    system_prompt: NotRequired[str]
    """Replaces the summariser's built-in prompt when not empty."""


class ExtractionArgs(TypedDict):
    """How facts are extracted from turns."""

    concurrency: NotRequired[int]
    """Model calls of background work in flight per replica, at least 1. Default 4."""
    max_retries: NotRequired[int]
    """Retries of a failed extraction, at least 0. Default 2."""
    system_prompt: NotRequired[str]
    """Replaces the extraction's built-in prompt when not empty."""
    idle_seconds: NotRequired[int]
    """Seconds without a new turn after which a session is extracted too. Default 600."""
    daily_token_budget: NotRequired[int]
    """Model tokens a day for the store's background work; above it extraction waits for the next
    day, writes do not. 0: no limit. Default 0."""


class RankingArgs(TypedDict):
    """How recalled facts are ordered; see the settings' table for what each weight is about."""

    bm25_k1: NotRequired[float]
    """Saturation of term frequencies. Default 0.9."""
    bm25_b: NotRequired[float]
    """Normalisation by length, 0 to 1. Default 0.2."""
    previous_weight: NotRequired[float]
    """Share of the words of the turn before. Default 0.5."""
    second_previous_weight: NotRequired[float]
    """Share of the words of the turn before that. Default 0.25."""
    next_weight: NotRequired[float]
    """Share of the words of the next turn. Default 0.3."""
    second_next_weight: NotRequired[float]
    """Share of the words of the turn after that. Default 0.15."""
    date_weight: NotRequired[float]
    """Share of day, month and year as words. Default 0.5."""
    cosine_weight: NotRequired[float]
    """Weight of the cosine similarity. Default 0.14."""
    speaker_weight: NotRequired[float]
    """Weight of being said by a person whom the query names. Default 0.22."""
    question_penalty: NotRequired[float]
    """Taken off where a fact holds a question mark. Default 0.06."""
    closing_question_penalty: NotRequired[float]
    """Taken off where a fact ends with one. Default 0.17."""
    time_weight: NotRequired[float]
    """Weight of words of time. Default 0.12."""
    length_weight: NotRequired[float]
    """Weight of the logarithm of a fact's words. Default 0.12."""


class LongTermArgs(TypedDict):
    """Facts: their extraction and recall."""

    enabled: NotRequired[bool]
    """False extracts nothing and recalls no facts, which is not degraded. Default true."""
    default_top_k: NotRequired[int]
    """Facts of a recall that names no `top_k`, at least 1. Default 10."""
    score_threshold: NotRequired[float]
    """Least cosine similarity of a recalled fact, 0 to 1. Omitted: none is dropped."""
    rerank: NotRequired[bool]
    """Let a rerank endpoint order the best facts anew. Default false."""
    exact_search_limit: NotRequired[int]
    """Facts up to which a recall compares all; above it an index is used. Default 10000."""
    extraction: NotRequired[ExtractionArgs]
    """How facts are extracted."""
    ranking: NotRequired[RankingArgs]
    """How recalled facts are ordered."""


class RetentionArgs(TypedDict):
    """How long records are kept; 0 is for ever."""

    facts_days: NotRequired[int]
    """Days after a fact was made or said again for the last time. Default 0."""
    digests_days: NotRequired[int]
    """Days after a digest was made; the latest of a session always stays. Default 0."""
    receipts_days: NotRequired[int]
    """Days for receipts of erasures. Default 0."""
    idempotency_hours: NotRequired[int]
    """Hours within which a repeated write is answered as the first one. Default 24."""


class TelemetryArgs(TypedDict):
    """Metrics."""

    metrics_port: NotRequired[int]
    """Port of `/metrics`; 0: none. Default 9464."""


class ServerArgs(TypedDict):
    """The service's process. Host and port are the component's own business."""

    drain_seconds: NotRequired[int]
    """Seconds for running requests and background work to end when a pod stops; the pod's grace
    period follows from it. Default 20."""


class AuthArgs(TypedDict):
    """How callers prove who they are."""

    mode: NotRequired[str]
    """`disabled`: names in the request body are believed, so that whoever reaches the Service can
    read everything. The only mode of this version, therefore to be written out."""


class ValueSourceArgs(TypedDict):
    """Where a variable's value comes from."""

    secret_key_ref: SecretReference
    """Entry of a Secret in the store's namespace."""


class EnvironmentVariableArgs(TypedDict):
    """One environment variable, in the shape of Kubernetes; value or value_from."""

    name: str
    """Name of the variable."""
    value: NotRequired[pulumi.Input[str]]
    """The text as the process shall see it: `$(X)` is not expanded. A plain value for variables
    `KAOS_MEMORY_*`, so that the whole configuration can be checked before anything is created."""
    value_from: NotRequired[ValueSourceArgs]
    """A reference instead; the only way for secrets."""


class ContainerArgs(TypedDict):
    """Overrides of the service's container."""

    env: NotRequired[list[EnvironmentVariableArgs]]
    """Variables that come last and win over what the other arguments project. The name of the
    store cannot be set, and what the pod is built from only by a plain value."""


class ResourcesArgs(TypedDict):
    """CPU and memory of a container. What is not given keeps the component's default."""

    requests: NotRequired[dict[str, str]]
    """What the scheduler sets aside, by resource name."""
    limits: NotRequired[dict[str, str]]
    """What the container may use at most, by resource name."""


class MemoryStoreArgs(TypedDict):
    """Arguments of `MemoryStore`."""

    namespace: pulumi.Input[str]
    """Namespace of the store; its Secrets and ModelAPIs live there too."""
    image: pulumi.Input[str]
    """Image of the memory service, with a tag or, better, a digest. `make image` makes one."""
    storage: StorageArgs
    """Where memory is kept."""
    models: ModelsArgs
    """The models for extraction, digests and embeddings."""
    name: NotRequired[str]
    """Name of the store; the Service is `memorystore-<name>`. Default: the resource's name."""
    engine: NotRequired[str]
    """Memory engine. Default mem0, the only one."""
    replicas: NotRequired[int]
    """Pods of the service, 1 to 100. Default 2: the service is stateless over its database."""
    short_term: NotRequired[ShortTermArgs]
    """The verbatim window."""
    medium_term: NotRequired[MediumTermArgs]
    """The rolling digest."""
    long_term: NotRequired[LongTermArgs]
    """Facts."""
    request_concurrency: NotRequired[int]
    """Reads in work at once per replica, and as many changes; more wait, then get 503.
    Default 8."""
    default_failure_mode: NotRequired[str]
    """What a failed write or forget looks like: soft or strict. Default soft."""
    max_read_scope: NotRequired[str]
    """Widest level that a bound agent may read: session, agent or user. Default agent."""
    retention: NotRequired[RetentionArgs]
    """How long records are kept."""
    telemetry: NotRequired[TelemetryArgs]
    """Metrics."""
    server: NotRequired[ServerArgs]
    """The service's process."""
    auth: NotRequired[AuthArgs]
    """How callers prove who they are; to be given in this version."""
    container: NotRequired[ContainerArgs]
    """Overrides of the container."""
    resources: NotRequired[ResourcesArgs]
    """CPU and memory of the container. Default: requests 100m and 256Mi, limit 768Mi."""
    rollout_token: NotRequired[pulumi.Input[str]]
    """Any short text; a new one restarts the pods, for instance after a Secret of yours was
    rotated. 256 characters at most."""
