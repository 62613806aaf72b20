"""The parts of a service, put together as its settings say."""

from collections.abc import Awaitable, Callable
from datetime import timedelta

from kaos_memory.api.app import Parts
from kaos_memory.engine.cached_embedder import CachedEmbedder
from kaos_memory.engine.mem0_extractor import INSTRUCTIONS, Mem0Extractor
from kaos_memory.engine.models import OpenAIEmbedder
from kaos_memory.engine.reranker import EndpointReranker
from kaos_memory.engine.summariser import ChatSummariser
from kaos_memory.engine.tokens import count_tokens, warm_up
from kaos_memory.engine.usage import TokenMeter
from kaos_memory.memory import EMBEDDING_SECONDS, Memory
from kaos_memory.settings import LocalStorage as LocalSettings
from kaos_memory.settings import ServiceSettings
from kaos_memory.storage.local.schema import StoreIdentity as LocalIdentity
from kaos_memory.storage.local.storage import LocalStorage
from kaos_memory.storage.postgres.schema import StoreIdentity, prompt_hash
from kaos_memory.storage.postgres.storage import PostgresStorage
from kaos_memory.storage.protocol import Storage
from kaos_memory.telemetry.spans import Telemetry
from kaos_memory.tiers.window import Compaction
from kaos_memory.work.housekeeping import Housekeeping
from kaos_memory.work.workers import Workers

_SPARE_CONNECTIONS = 4
"""For readiness, housekeeping, and leases that are renewed while their work is committed."""


def storage_of(settings: ServiceSettings) -> Storage:
    """The storage that the settings name, not opened yet."""
    external, extraction = settings.storage.external, settings.long_term.extraction
    store, embedding_model = settings.store.name, settings.models.embedding.model
    compaction = Compaction(
        trigger=settings.compaction_trigger,
        target=settings.compaction_target,
        hard_event_cap=settings.short_term.hard_event_cap,
        fold=settings.medium_term.enabled,
        extract=settings.long_term.enabled,
    )
    idle_after = timedelta(seconds=extraction.idle_seconds)
    provenance = (
        settings.models.summarization.model,
        prompt_hash(extraction.system_prompt or INSTRUCTIONS),
    )
    if external is None:
        return LocalStorage(
            settings.storage.local or LocalSettings(),
            LocalIdentity(store, embedding_model),
            compaction,
            idle_after=idle_after,
            digest_retention=settings.medium_term.digest_retention,
            provenance=provenance,
            long_term=settings.long_term,
        )
    return PostgresStorage(
        external,
        StoreIdentity(store, embedding_model, external.embedding_dims),
        compaction,
        idle_after=idle_after,
        digest_retention=settings.medium_term.digest_retention,
        provenance=provenance,
        connections=2 * settings.request_concurrency  # reads and changes
        + extraction.concurrency
        + _SPARE_CONNECTIONS,
        long_term=settings.long_term,
    )


def assemble(settings: ServiceSettings, telemetry: Telemetry) -> Parts:
    """The parts of a service that is not started yet."""
    storage, models = storage_of(settings), settings.models
    external = settings.storage.external
    dims = external.embedding_dims if external is not None else None
    meter = TokenMeter()
    told = (telemetry.instruments.model_called,)
    metered = (*told, meter.heard)
    extraction = settings.long_term.extraction
    embedder = OpenAIEmbedder(models.embedding, dims, listeners=metered)
    query_embedder = OpenAIEmbedder(models.embedding, dims, listeners=told)
    queries = CachedEmbedder(query_embedder, late_seconds=EMBEDDING_SECONDS)
    reranker = None
    if settings.long_term.rerank:
        reranker = EndpointReranker(models.rerank or models.embedding, listeners=told)
    summariser = ChatSummariser(
        models.summarization, settings.medium_term.system_prompt, listeners=metered
    )
    extractor = Mem0Extractor(
        models.summarization, embedder, extraction.system_prompt, listeners=metered
    )
    workers = Workers(
        storage,
        summariser,
        extractor,
        count_tokens,
        concurrency=extraction.concurrency,
        max_retries=extraction.max_retries,
        meter=meter,
        daily_token_budget=extraction.daily_token_budget,
        telemetry=telemetry,
    )
    memory = Memory(
        settings,
        storage,
        queries,
        count_tokens,
        workers.wake,
        reranker=reranker,
        instruments=telemetry.instruments,
    )
    closing: list[Callable[[], Awaitable[None]]] = [
        queries.aclose,
        query_embedder.aclose,
        embedder.aclose,
    ]
    closing += [summariser.aclose, extractor.aclose]
    if reranker is not None:
        closing.append(reranker.aclose)
    return Parts(
        settings=settings,
        storage=storage,
        memory=memory,
        workers=workers,
        housekeeping=Housekeeping(storage, settings.retention, telemetry.instruments),
        telemetry=telemetry,
        warm_up=warm_up,
        closing=closing,
    )
