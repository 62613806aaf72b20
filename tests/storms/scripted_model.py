"""A model that keeps every request waiting for as long as a test wants, and remembers them all."""

import asyncio
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from kaos_memory.engine.protocols import Extraction, NeighbourSearch
from kaos_memory.engine.still_wanted import still_wanted
from kaos_memory.tiers.memory import Digest, NewFact, Owner, Turn

MARKER = re.compile(r"[tf]\d{4}x\d{3}")
"""What tests find a turn or a fact again by: round and number."""


def fact_marker(turn_marker: str) -> str:
    """The marker of the fact that a turn becomes. It is another: facts are erased alone too."""
    return f"f{turn_marker[1:]}"


class Gate:
    """A place where something waits until it is let through."""

    def __init__(self) -> None:
        self._reached = asyncio.Event()
        self._open = asyncio.Event()

    async def wait(self) -> None:
        """Wait here until it is open."""
        self._reached.set()
        await self._open.wait()

    async def reached(self) -> None:
        """Wait until somebody waits here."""
        await self._reached.wait()

    def open(self) -> None:
        """Let through."""
        self._open.set()


@dataclass
class Model:
    """Digests and extracts by quoting, in as many requests as the real engines make."""

    holding: bool = False
    """Whether requests that come now wait."""
    waiting: list[Gate] = field(default_factory=list[Gate])
    requests: list[str] = field(default_factory=list[str])
    """All that was asked so far."""

    def release_all(self) -> None:
        """Hold nothing any more."""
        self.holding = False
        for gate in self.waiting:
            gate.open()
        self.waiting.clear()

    async def fold(self, digest: Digest, turns: Sequence[Turn]) -> str:
        told = " ".join([digest.summary, *(turn.content for turn in turns)]).strip()
        await self._ask(told)
        return told

    async def extract(
        self, owner: Owner, turns: Sequence[Turn], neighbours: NeighbourSearch
    ) -> Extraction:
        """As Mem0 does it: embed the turns, look for what is near, ask, embed the facts."""
        told = " ".join(turn.content for turn in turns)
        await self._ask(told)
        known = [fact.text for fact in await neighbours(_vector(turns[0].position), 20)]
        await self._ask(" ".join([told, *known]))
        # A model may say again what it was shown.
        facts = dict.fromkeys(known, turns[-1])
        facts |= {
            f"{owner.principal} told {fact_marker(marker)}": turn
            for turn in turns
            for marker in MARKER.findall(turn.content)
        }
        await self._ask(" ".join(facts))
        return Extraction(
            [
                NewFact(text, _vector(turn.position), turn.position, turn.position, turn.said_at)
                for text, turn in facts.items()
            ]
        )

    async def _ask(self, text: str) -> None:
        await still_wanted()
        self.requests.append(text)
        if self.holding:
            gate = Gate()
            self.waiting.append(gate)
            await gate.wait()


def _vector(seed: int) -> list[float]:
    return [1.0 if axis == seed % 8 else 0.01 for axis in range(8)]
