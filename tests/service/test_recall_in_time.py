"""A recall ends in time with what it has: facts that were found are not lost to a late reranker."""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import cast
from uuid import UUID

import pytest

from kaos_memory.contract import MemoryTier, ScopeLevel
from kaos_memory.memory import Memory
from kaos_memory.settings import ServiceSettings
from kaos_memory.storage.protocol import Storage
from kaos_memory.tiers.memory import Fact, fact_hash
from kaos_memory.tiers.reach import Owners, Reach

AT = datetime(2026, 1, 2, tzinfo=UTC)
FACTS = [
    Fact(UUID(int=at), "alice", "helper", "s-1", text, fact_hash(text), AT, AT, 0.5)
    for at, text in enumerate(["tea", "milk", "sugar"])
]


class SlowFacts:
    """The part of a storage that a recall of facts asks; it answers after 0.2 s."""

    async def search(self, *_asked: object) -> list[Fact]:
        await asyncio.sleep(0.2)
        return FACTS


class Embeddings:
    """Every text is alike."""

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        return [[1.0] for _ in texts]


class LateReranker:
    """Answers after the recall has ended."""

    async def rerank(self, query: str, documents: Sequence[str]) -> list[int]:  # noqa: ARG002
        await asyncio.sleep(5)
        return list(range(len(documents)))


async def test_facts_outlive_a_reranker_that_has_too_little_time_left(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr("kaos_memory.memory.RECALL_SECONDS", 0.8)
    memory = Memory(
        ServiceSettings(),
        cast("Storage", SlowFacts()),
        Embeddings(),
        len,
        lambda: None,
        reranker=LateReranker(),
    )
    answer = await memory.recall(
        Reach(ScopeLevel.AGENT, Owners("alice", "helper"), None),
        "tea",
        top_k=3,
        include=[MemoryTier.LONG_TERM],
        token_budget=None,
    )
    assert answer.long_term is not None
    assert [fact["memory"] for fact in answer.long_term.facts] == ["tea", "milk", "sugar"]
    assert answer.degraded is True
