"""What the service does, without HTTP: recall, list, write and forget over one store."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Generic, TypeVar
from uuid import UUID

from kaos_memory.contract import (
    Erasure,
    FactResponse,
    LongTermContext,
    MediumTermContext,
    MemoryTier,
    RecallResponse,
    ShortTermContext,
    Turn,
)
from kaos_memory.engine.protocols import Embedder, ModelError, Reranker
from kaos_memory.settings import FailureMode, ServiceSettings
from kaos_memory.storage.protocol import IdempotencyKey, Storage, StorageUnavailable
from kaos_memory.telemetry.catalogue import TierOutcome
from kaos_memory.telemetry.instruments import Instruments
from kaos_memory.tiers import facts as facts_tier
from kaos_memory.tiers import provenance, window
from kaos_memory.tiers.memory import Conversation, Fact, NewTurn, Owner
from kaos_memory.tiers.reach import Owners, Reach

RECALL_SECONDS = 3.0
"""A tier that takes longer is left out and the answer is degraded. Clients wait 5 seconds."""

EMBEDDING_SECONDS = 1.5
"""A query that is not embedded by then is answered by its words alone, and degraded."""

RERANK_SECONDS = 1.0
"""Facts that are not reranked by then keep their order, and the answer is degraded."""

ANSWER_SECONDS = 0.2
"""What is kept of a recall's time for its answer, so that found facts are not lost with it."""

RERANKED_FACTS = 50
"""Facts that a rerank endpoint is shown, at least."""

WRITE_SECONDS = 8.0
"""A write or a closing that takes longer is not accepted. Clients wait 10 seconds."""

_T = TypeVar("_T")
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Written:
    """`stored` is true only if it is; `scheduled` where background work became due with it."""

    stored: bool
    scheduled: bool = False
    replayed: bool = False
    """It was stored before, under the same key."""


@dataclass(frozen=True)
class Read(Generic[_T]):
    """What a tier gave, and whether that is less than there may be."""

    found: Sequence[_T]
    degraded: bool = False


@dataclass(frozen=True)
class Page:
    """One page of a list."""

    answer: RecallResponse
    next_cursor: str | None


class NotThere(Exception):
    """There is no such thing, or it is not the caller's. The message is what kind of thing."""


class Memory:
    """One store, as its callers see it."""

    def __init__(
        self,
        settings: ServiceSettings,
        storage: Storage,
        queries: Embedder,
        count_tokens: Callable[[str], int],
        wake_workers: Callable[[], None],
        *,
        reranker: Reranker | None = None,
        instruments: Instruments | None = None,
    ) -> None:
        self.settings = settings
        self._storage = storage
        self._queries = queries
        self._count_tokens = count_tokens
        self._wake_workers = wake_workers
        self._reranker = reranker
        self._instruments = instruments or Instruments()

    async def recall(
        self,
        reach: Reach,
        query: str,
        *,
        top_k: int | None,
        include: Sequence[MemoryTier],
        token_budget: int | None,
    ) -> RecallResponse:
        """The tiers that were asked for. One that fails or is late is empty; nothing is raised."""
        most = top_k or self.settings.long_term.default_top_k

        async def relevant() -> Read[Fact]:
            return await self._relevant(reach.owners, query, most)

        return await self._tiers(reach, include, token_budget, relevant)

    async def list_page(
        self,
        reach: Reach,
        *,
        include: Sequence[MemoryTier],
        token_budget: int | None,
        limit: int,
        cursor: str | None,
    ) -> Page:
        """Everything at a scope, a page of facts at a time.

        Raises:
            InvalidCursor: the cursor is none of ours.
        """
        next_cursor: str | None = None

        async def page() -> Read[Fact]:
            nonlocal next_cursor
            facts, next_cursor = await self._storage.list_facts(reach.owners, limit, cursor)
            return Read(facts)

        answer = await self._tiers(reach, include, token_budget, page)
        return Page(answer, next_cursor)

    async def write(
        self,
        owner: Owner,
        turns: Sequence[Turn],
        *,
        infer: bool,
        failure_mode: FailureMode | None,
        idempotency_key: str | None = None,
    ) -> Written:
        """Store turns; with a key once, however often they are sent.

        Raises:
            IdempotencyConflict: the key was used for another write.
            StorageUnavailable: they could not be stored, and the failure mode is strict.
        """
        new = [
            NewTurn(turn.role, turn.content, self._count_tokens(turn.content), infer, turn.said_at)
            for turn in turns
        ]
        try:
            async with asyncio.timeout(WRITE_SECONDS):
                appended = await self._storage.append(owner, new, self._key(idempotency_key))
        except (StorageUnavailable, TimeoutError) as error:
            if self._strict(failure_mode):
                raise StorageUnavailable(type(error).__name__) from error
            return Written(stored=False)
        if appended.replayed:
            self._instruments.replayed()
        elif appended.scheduled:
            self._wake_workers()
        return Written(True, appended.scheduled, appended.replayed)

    async def close_sessions(self, reach: Reach) -> bool:
        """Have the turns of a session extracted now. True where work is due for it.

        Raises:
            StorageUnavailable: nothing is known to have changed.
        """
        try:
            async with asyncio.timeout(WRITE_SECONDS):
                scheduled = await self._storage.close_sessions(reach.owners)
        except TimeoutError as error:
            raise StorageUnavailable(type(error).__name__) from error
        if scheduled:
            self._wake_workers()
        return scheduled

    async def forget(
        self,
        reach: Reach,
        *,
        failure_mode: FailureMode | None,
        dry_run: bool,
        by: str | None = None,
    ) -> Erasure | None:
        """Erase, and return the receipt; None where that failed softly and nothing is erased.

        Raises:
            StorageUnavailable: nothing could be erased, and the failure mode is strict.
        """
        try:
            receipt = await self._storage.erase(reach, dry_run=dry_run, by=by)
        except StorageUnavailable:
            if self._strict(failure_mode):
                raise
            return None
        if not dry_run:
            _log_receipt(receipt)
        return receipt

    async def fact(self, reach: Reach, fact_id: UUID | None) -> FactResponse:
        """A fact that a reach covers, with its provenance.

        Raises:
            NotThere: there is none, or it is out of reach.
        """
        found = fact_id and await self._storage.fact(reach.owners, fact_id)
        if not found:
            raise NotThere("fact")
        return FactResponse.model_validate(provenance.record(*found))

    async def forget_fact(
        self, reach: Reach, fact_id: UUID | None, *, by: str | None = None
    ) -> Erasure | None:
        """Erase a fact that a reach covers, as `forget` does with the default failure mode.

        Raises:
            NotThere: there is none, or it is out of reach.
        """
        if fact_id is None:
            raise NotThere("fact")
        try:
            receipt = await self._storage.erase_fact(reach.owners, fact_id, by=by)
        except StorageUnavailable:
            if self._strict(None):
                raise
            return None
        if receipt is None:
            raise NotThere("fact")
        _log_receipt(receipt)
        return receipt

    async def receipt(self, erasure_id: UUID | None, *, to: str | None) -> Erasure:
        """The receipt of an erasure, for an agent or, without one, for an admin.

        Raises:
            NotThere: there is none, or it is not about that agent and was not asked for by it.
        """
        found = erasure_id and await self._storage.receipt(erasure_id, to=to)
        if not found:
            raise NotThere("receipt")
        return found

    def _key(self, name: str | None) -> IdempotencyKey | None:
        if name is None:
            return None
        hours = self.settings.retention.idempotency_hours
        return IdempotencyKey(name, timedelta(hours=hours))

    def _strict(self, failure_mode: FailureMode | None) -> bool:
        return (failure_mode or self.settings.default_failure_mode) is FailureMode.STRICT

    async def _tiers(
        self,
        reach: Reach,
        include: Sequence[MemoryTier],
        token_budget: int | None,
        read_facts: Callable[[], Awaitable[Read[Fact]]],
    ) -> RecallResponse:
        budget = token_budget or self.settings.short_term.token_budget
        talk = MemoryTier.SHORT_TERM in include or MemoryTier.MEDIUM_TERM in include
        talking = self._conversations(reach.conversations if talk else None, budget)
        facts: Read[Fact] = Read([])
        if MemoryTier.LONG_TERM in include and self.settings.long_term.enabled:
            conversations, facts = await asyncio.gather(
                talking, self._in_time("long_term", read_facts())
            )
        else:
            conversations = await talking
        return RecallResponse(
            long_term=LongTermContext(
                facts=[facts_tier.record(fact) for fact in facts.found],
                block=facts_tier.block(facts.found),
            )
            if MemoryTier.LONG_TERM in include
            else None,
            medium_term=MediumTermContext(summary=window.summary(conversations.found))
            if MemoryTier.MEDIUM_TERM in include
            else None,
            short_term=ShortTermContext(window=window.merged(conversations.found, budget))
            if MemoryTier.SHORT_TERM in include
            else None,
            degraded=conversations.degraded or facts.degraded,
        )

    async def _conversations(self, owners: Owners | None, budget: int) -> Read[Conversation]:
        if owners is None:
            return Read([])

        async def reading() -> Read[Conversation]:
            return Read(await self._storage.conversations(owners, budget))

        return await self._in_time("conversation", reading())

    async def _relevant(self, owners: Owners, query: str, most: int) -> Read[Fact]:
        if not query.strip():
            # Nothing is similar to nothing: the newest facts serve a caller without a question.
            return Read(await self._storage.newest_facts(owners, most))
        must_end = time.monotonic() + RECALL_SECONDS - ANSWER_SECONDS
        embedding = await self._embedded(query)
        shown = most if self._reranker is None else max(most, RERANKED_FACTS)
        facts = await self._storage.search(
            owners, query, embedding, shown, self.settings.long_term.score_threshold
        )
        found = Read(facts, degraded=embedding is None)
        if self._reranker is not None:
            found = await self._reranked(self._reranker, query, found, must_end)
        return Read(found.found[:most], found.degraded)

    async def _embedded(self, query: str) -> Sequence[float] | None:
        """The query's embedding; None where the endpoint fails or is late."""
        try:
            async with asyncio.timeout(EMBEDDING_SECONDS):
                [embedding] = await self._queries.embed([query])
        except (ModelError, TimeoutError) as error:
            _log.warning("recall_by_words_alone", extra={"reason": type(error).__name__})
            return None
        return embedding

    async def _reranked(
        self, reranker: Reranker, query: str, read: Read[Fact], must_end: float
    ) -> Read[Fact]:
        """The same facts in the endpoint's order; in their own where it fails or is late."""
        try:
            async with asyncio.timeout(min(RERANK_SECONDS, must_end - time.monotonic())):
                order = await reranker.rerank(query, [fact.text for fact in read.found])
        except (ModelError, TimeoutError) as error:
            _log.warning("recall_not_reranked", extra={"reason": type(error).__name__})
            return Read(read.found, degraded=True)
        return Read([read.found[index] for index in order], read.degraded)

    async def _in_time(self, tier: str, reading: Awaitable[Read[_T]]) -> Read[_T]:
        """What was read; where that failed, nothing, and a recall goes on without the tier."""
        began = time.monotonic()
        outcome = TierOutcome.OK
        try:
            async with asyncio.timeout(RECALL_SECONDS):
                return await reading
        except TimeoutError:
            outcome = TierOutcome.LATE
        except StorageUnavailable as error:
            outcome = TierOutcome.FAILED
            _log.warning("recall_tier_failed", extra={"tier": tier, "reason": type(error).__name__})
        finally:
            self._instruments.tier(tier, outcome, time.monotonic() - began)
        return Read([], degraded=True)


def _log_receipt(receipt: Erasure) -> None:
    """Receipts must outlive the loss of the database, to be replayed in what is restored."""
    _log.info("erasure", extra={"receipt": receipt.model_dump(mode="json", exclude_none=True)})
