"""What is computed of new facts before they are stored, and which of them may be."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Generic, TypeVar

from kaos_memory.tiers import lexical
from kaos_memory.tiers.memory import NewFact, Turn

V = TypeVar("V")


@dataclass(frozen=True)
class PreparedFact(Generic[V]):
    """A new fact with all that its row holds."""

    fact: NewFact
    hash: str
    embedding: V
    """As the storage writes it."""
    terms: bytes
    words: int
    cues: int


async def prepared(
    facts: Sequence[NewFact], encode: Callable[[Sequence[float]], V]
) -> list[PreparedFact[V]]:
    """The different ones of some facts, prepared in a thread: many long texts take seconds."""
    return await asyncio.to_thread(prepare, facts, encode) if facts else []


def prepare(
    facts: Sequence[NewFact], encode: Callable[[Sequence[float]], V]
) -> list[PreparedFact[V]]:
    """The same in this thread."""
    different = {fact.hash: fact for fact in facts}
    return [
        PreparedFact(
            fact=fact,
            hash=text_hash,
            embedding=encode(fact.embedding),
            terms=lexical.terms(fact.text),
            words=lexical.words(fact.text),
            cues=int(lexical.cues(fact.text)),
        )
        for text_hash, fact in different.items()
    ]


def not_erased(
    facts: Sequence[PreparedFact[V]], turns: Sequence[Turn], erasures: Mapping[str, datetime]
) -> list[PreparedFact[V]]:
    """Facts that bring nothing back: none of an erased text that may come from an older turn.

    Args:
        facts: New facts.
        turns: What they were taken from, in order.
        erasures: By hash, when the fact was erased last.
    """
    return [
        each
        for each in facts
        if each.hash not in erasures or erasures[each.hash] < _oldest_source(each.fact, turns)
    ]


def _oldest_source(fact: NewFact, turns: Sequence[Turn]) -> datetime:
    return min(
        (
            turn.created_at
            for turn in turns
            if fact.first_position <= turn.position <= fact.last_position
        ),
        default=turns[0].created_at,
    )
