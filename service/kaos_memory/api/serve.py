"""The process: settings from the environment, parts put together, a server that drains."""

import logging
import math
import os
import sys
from datetime import timedelta

import uvicorn

from kaos_memory.api.app import Parts, create_app
from kaos_memory.engine.mem0_extractor import EXTRACTION_SECONDS, INSTRUCTIONS, Mem0Extractor
from kaos_memory.engine.models import CachedEmbedder, OpenAIEmbedder
from kaos_memory.engine.summariser import ChatSummariser
from kaos_memory.engine.tokens import count_tokens, warm_up
from kaos_memory.memory import Memory
from kaos_memory.settings import ServiceSettings, SettingsError, from_environment
from kaos_memory.storage.postgres.schema import StoreIdentity, prompt_hash
from kaos_memory.storage.postgres.storage import PostgresStorage
from kaos_memory.telemetry import logs
from kaos_memory.tiers.window import Compaction
from kaos_memory.work.workers import Workers

EXIT_BAD_SETTINGS = 2
_COMMIT_SECONDS = 15.0
"""Time to load and to commit beside the longest model call of a lease."""


def main() -> None:
    """Serve one store until SIGTERM. Exit code 2 where settings break rules."""
    logs.set_up()
    try:
        settings = from_environment(os.environ)
        parts = build(settings)
    except SettingsError as error:
        for line in error.problems:
            sys.stderr.write(f"error: {line}\n")
        raise SystemExit(EXIT_BAD_SETTINGS) from None
    uvicorn.run(
        create_app(parts),
        host=settings.server.host,
        port=settings.server.port,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        log_config=None,
        timeout_graceful_shutdown=math.ceil(settings.server.drain_seconds / 2),
    )


def build(settings: ServiceSettings) -> Parts:
    """Put the parts of a service together.

    Raises:
        SettingsError: a setting that this version cannot serve.
    """
    external = settings.storage.external
    if external is None:
        raise SettingsError(
            ["storage.type is 'local': not available in this version; use 'external'"]
        )
    if settings.long_term.rerank:
        raise SettingsError(
            ["long_term.rerank is true: not available in this version; leave it out"]
        )
    prompt = settings.long_term.extraction.system_prompt
    compaction = Compaction(
        trigger=settings.compaction_trigger,
        target=settings.compaction_target,
        hard_event_cap=settings.short_term.hard_event_cap,
        fold=settings.medium_term.enabled,
        extract=settings.long_term.enabled,
    )
    concurrency = settings.long_term.extraction.concurrency
    storage = PostgresStorage(
        external,
        StoreIdentity(
            settings.store.name, settings.models.embedding.model, external.embedding_dims
        ),
        compaction,
        idle_after=timedelta(seconds=settings.long_term.extraction.idle_seconds),
        digest_retention=settings.medium_term.digest_retention,
        provenance=(settings.models.summarization.model, prompt_hash(prompt or INSTRUCTIONS)),
        connections=settings.request_concurrency + concurrency + 1,
    )
    embedder = OpenAIEmbedder(settings.models.embedding, external.embedding_dims)
    queries = CachedEmbedder(embedder)
    summariser = ChatSummariser(settings.models.summarization, settings.medium_term.system_prompt)
    extractor = Mem0Extractor(settings.models.summarization, embedder, prompt)
    workers = Workers(
        storage,
        summariser,
        extractor,
        count_tokens,
        lease_for=timedelta(seconds=EXTRACTION_SECONDS + _COMMIT_SECONDS),
        concurrency=concurrency,
        max_retries=settings.long_term.extraction.max_retries,
    )
    memory = Memory(settings, storage, queries, count_tokens, workers.wake)
    if settings.auth.mode == "disabled":
        logging.getLogger(__name__).warning("auth_disabled")
    closing = (queries.aclose, embedder.aclose, summariser.aclose, extractor.aclose)
    return Parts(settings, storage, memory, workers, warm_up, closing)


if __name__ == "__main__":
    main()
