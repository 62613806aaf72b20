"""Where a fact comes from."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from kaos_memory.tiers import facts
from kaos_memory.tiers.memory import Fact


@dataclass(frozen=True)
class Provenance:
    """The turns of its session that a fact was taken from, and by what."""

    first_position: int
    last_position: int
    said_at: datetime
    model: str
    prompt_hash: str


def record(fact: Fact, source: Provenance) -> dict[str, Any]:
    """The fact as recalls show it, with its provenance among the metadata."""
    shown = facts.record(fact)
    shown["metadata"] |= {
        "first_turn": source.first_position,
        "last_turn": source.last_position,
        "said_at": source.said_at.isoformat(),
        "model": source.model,
        "prompt_hash": source.prompt_hash,
    }
    return shown
