"""Clients that never give up: writers, and one who erases. They note what they were promised."""

import asyncio
import itertools
import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import httpx

from kaos_memory.tiers.memory import Owner

_SECONDS = 15.0
_AGAIN_SECONDS = 0.25


@dataclass
class Said:
    """A turn that somebody wrote."""

    name: str
    """A word that no other turn has."""
    owner: Owner
    asked_at: float
    accepted_at: float = 0


@dataclass(frozen=True)
class Erased:
    """An erasure of a user: it took place at some moment between these two."""

    principal: str
    asked_at: float
    answered_at: float


@dataclass
class Ledger:
    """What clients know: what they wrote and erased, and when."""

    said: list[Said] = field(default_factory=list[Said])
    erased: list[Erased] = field(default_factory=list[Erased])

    def gone(self) -> set[str]:
        """Turns that were accepted before an erasure of their user was asked for."""
        return {turn.name for turn, erasure in self._pairs() if turn.accepted_at < erasure.asked_at}

    def doubtful(self) -> set[str]:
        """Turns that were written while their user was erased: either may have come first."""
        beside = {
            turn.name
            for turn, erasure in self._pairs()
            if turn.asked_at < erasure.answered_at and turn.accepted_at >= erasure.asked_at
        }
        return beside - self.gone()

    def of(self, owner: Owner) -> list[str]:
        """All turns of one conversation, in order."""
        return [turn.name for turn in self.said if turn.owner == owner]

    def _pairs(self) -> list[tuple[Said, Erased]]:
        pairs = itertools.product(self.said, self.erased)
        return [
            (turn, erasure) for turn, erasure in pairs if turn.owner.principal == erasure.principal
        ]


class Clients:
    """Asks any replica, again and again, until one has answered with success."""

    def __init__(self, urls: Sequence[str], ledger: Ledger, luck: random.Random) -> None:
        self._urls = urls
        self._ledger = ledger
        self._luck = luck
        self._numbers = itertools.count(1)
        self._http = httpx.AsyncClient(timeout=_SECONDS)
        self.writes = 0
        self.asked_again = 0
        """How often a write had to be sent once more."""

    async def aclose(self) -> None:
        """Close all connections."""
        await self._http.aclose()

    async def talk(self, owner: Owner, writes: int, over: asyncio.Event) -> None:
        """Write so often, in bursts with pauses between; then go on until it is over."""
        for number in itertools.count(1):
            if number > writes and over.is_set():
                return
            await self._write(owner, infer=self._luck.random() > 0.1)
            if not over.is_set():
                burst_ends = number % 5 == 0
                await asyncio.sleep(self._luck.uniform(2, 6) if burst_ends else 0.05)

    async def erase(self, principals: Sequence[str], over: asyncio.Event) -> None:
        """Erase one user after the other until it is over, each at least once."""
        for number, principal in enumerate(itertools.cycle(principals)):
            if number >= len(principals) and over.is_set():
                return
            asked_at = time.monotonic()
            scope = {"level": "user", "principal": principal}
            answer = await self._insist("forget", {"scope": scope, "failure_mode": "strict"})
            assert answer["forgotten"] is True
            self._ledger.erased.append(Erased(principal, asked_at, time.monotonic()))
            await asyncio.sleep(self._luck.uniform(0.5, 1.5))

    async def _write(self, owner: Owner, *, infer: bool) -> None:
        turns = [
            Said(f"t{next(self._numbers):05}t", owner, time.monotonic())
            for _ in range(self._luck.choice((1, 1, 2)))
        ]
        self._ledger.said += turns
        body = {
            "attribution": {
                "principal": owner.principal,
                "agent_client_id": owner.agent,
                "session_id": owner.session,
            },
            "turns": [{"role": "user", "content": _sentence(turn.name)} for turn in turns],
            "infer": infer,
            "failure_mode": "strict",
        }
        answer = await self._insist("write", body, {"Idempotency-Key": str(uuid4())})
        assert answer["accepted"] is True
        self.writes += 1
        for turn in turns:
            turn.accepted_at = time.monotonic()

    async def _insist(
        self, path: str, body: Mapping[str, Any], headers: Mapping[str, str] | None = None
    ) -> dict[str, Any]:
        for _ in itertools.count():
            url = self._luck.choice(self._urls)
            try:
                answer = await self._http.post(f"{url}/v1/{path}", json=body, headers=headers)
            except httpx.TransportError:
                answer = None
            if answer is not None and answer.status_code != 503:
                assert answer.is_success, answer.text
                return answer.json()
            self.asked_again += path == "write"
            await asyncio.sleep(_AGAIN_SECONDS)
        raise AssertionError


def _sentence(name: str) -> str:
    """One that informs, so that a fact is taken from it."""
    return f"The field of {name} gave a good harvest of wheat this year."
