"""What the service does, without HTTP: recall, list, write and forget over one store."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from kaos_memory.contract import (
    Erasure,
    LongTermContext,
    MediumTermContext,
    MemoryTier,
    RecallResponse,
    ShortTermContext,
    Turn,
)
from kaos_memory.engine.protocols import Embedder, ModelError
from kaos_memory.settings import FailureMode, ServiceSettings
from kaos_memory.storage.protocol import Storage, StorageUnavailable
from kaos_memory.tiers import facts as facts_tier
from kaos_memory.tiers import window
from kaos_memory.tiers.memory import Conversation, Fact, NewTurn, Owner
from kaos_memory.tiers.reach import Owners, Reach

RECALL_SECONDS = 3.0
"""A tier that takes longer is left out and the answer is degraded. Clients wait 5 seconds."""

WRITE_SECONDS = 8.0
"""A write that takes longer is not accepted. Clients wait 10 seconds."""

_T = TypeVar("_T")
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Written:
    """`stored` is true only if it is; `scheduled` where background work became due with it."""

    stored: bool
    scheduled: bool = False


@dataclass(frozen=True)
class Page:
    """One page of a list."""

    answer: RecallResponse
    next_cursor: str | None


class Memory:
    """One store, as its callers see it."""

    def __init__(
        self,
        settings: ServiceSettings,
        storage: Storage,
        queries: Embedder,
        count_tokens: Callable[[str], int],
        wake_workers: Callable[[], None],
    ) -> None:
        self.settings = settings
        self._storage = storage
        self._queries = queries
        self._count_tokens = count_tokens
        self._wake_workers = wake_workers

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

        async def relevant() -> Sequence[Fact]:
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

        async def page() -> Sequence[Fact]:
            nonlocal next_cursor
            facts, next_cursor = await self._storage.list_facts(reach.owners, limit, cursor)
            return facts

        answer = await self._tiers(reach, include, token_budget, page)
        return Page(answer, next_cursor)

    async def write(
        self, owner: Owner, turns: Sequence[Turn], *, infer: bool, failure_mode: FailureMode | None
    ) -> Written:
        """Store turns.

        Raises:
            StorageUnavailable: they could not be stored, and the failure mode is strict.
        """
        new = [
            NewTurn(turn.role, turn.content, self._count_tokens(turn.content), infer, turn.said_at)
            for turn in turns
        ]
        try:
            async with asyncio.timeout(WRITE_SECONDS):
                scheduled = await self._storage.append(owner, new)
        except (StorageUnavailable, TimeoutError) as error:
            if self._strict(failure_mode):
                raise StorageUnavailable(type(error).__name__) from error
            return Written(stored=False)
        if scheduled:
            self._wake_workers()
        return Written(stored=True, scheduled=scheduled)

    async def close_sessions(self, reach: Reach) -> bool:
        """Have the turns of a session extracted now. True where work is due for it.

        Raises:
            StorageUnavailable: nothing is known to have changed.
        """
        scheduled = await self._storage.close_sessions(reach.owners)
        if scheduled:
            self._wake_workers()
        return scheduled

    async def forget(
        self, reach: Reach, *, failure_mode: FailureMode | None, dry_run: bool
    ) -> Erasure | None:
        """Erase, and return the receipt; None where that failed softly and nothing is erased.

        Raises:
            StorageUnavailable: nothing could be erased, and the failure mode is strict.
        """
        try:
            return await self._storage.erase(reach, dry_run=dry_run)
        except StorageUnavailable:
            if self._strict(failure_mode):
                raise
            return None

    def _strict(self, failure_mode: FailureMode | None) -> bool:
        return (failure_mode or self.settings.default_failure_mode) is FailureMode.STRICT

    async def _tiers(
        self,
        reach: Reach,
        include: Sequence[MemoryTier],
        token_budget: int | None,
        read_facts: Callable[[], Awaitable[Sequence[Fact]]],
    ) -> RecallResponse:
        budget = token_budget or self.settings.short_term.token_budget
        talk = MemoryTier.SHORT_TERM in include or MemoryTier.MEDIUM_TERM in include
        talking = _in_time(self._conversations(reach.conversations if talk else None, budget))
        facts: Sequence[Fact] = ()
        facts_failed = False
        if MemoryTier.LONG_TERM in include and self.settings.long_term.enabled:
            (conversations, talk_failed), (facts, facts_failed) = await asyncio.gather(
                talking, _in_time(read_facts())
            )
        else:
            conversations, talk_failed = await talking
        return RecallResponse(
            long_term=LongTermContext(
                facts=[facts_tier.record(fact) for fact in facts], block=facts_tier.block(facts)
            )
            if MemoryTier.LONG_TERM in include
            else None,
            medium_term=MediumTermContext(summary=window.summary(conversations))
            if MemoryTier.MEDIUM_TERM in include
            else None,
            short_term=ShortTermContext(window=window.merged(conversations, budget))
            if MemoryTier.SHORT_TERM in include
            else None,
            degraded=talk_failed or facts_failed,
        )

    async def _conversations(self, owners: Owners | None, budget: int) -> Sequence[Conversation]:
        return [] if owners is None else await self._storage.conversations(owners, budget)

    async def _relevant(self, owners: Owners, query: str, most: int) -> Sequence[Fact]:
        if not query.strip():
            # Nothing is similar to nothing: the newest facts serve a caller without a question.
            return await self._storage.newest_facts(owners, most)
        [embedding] = await self._queries.embed([query])
        return await self._storage.nearest_facts(
            owners, embedding, most, self.settings.long_term.score_threshold
        )


async def _in_time(reading: Awaitable[Sequence[_T]]) -> tuple[Sequence[_T], bool]:
    """What was read, and whether that failed: a recall goes on without the tier."""
    try:
        async with asyncio.timeout(RECALL_SECONDS):
            return await reading, False
    except (StorageUnavailable, ModelError, TimeoutError) as error:
        _log.warning("recall_tier_failed", extra={"reason": type(error).__name__})
        return [], True
