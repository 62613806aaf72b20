"""Who remembers and is asked: our service, the published one, and Mem0 as a library.

What each is given of a turn, and how, is said in `docs/benchmarks/README.md`.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import asyncpg
import httpx
import orjson

from bench import wire
from bench.load import Address, run
from bench.recall.locomo import Session, Turn
from bench.recall.measures import TOP
from bench.wire import Owner
from kaos_dev import peer

_REMEMBER_SECONDS = 900.0
_ANSWER_SECONDS = 60.0
_POLL_SECONDS = 0.5


class NotRememberedError(RuntimeError):
    """A write was refused, or what was written cannot be found after a long time."""


@dataclass(frozen=True)
class Found:
    """The texts that a search returned, best first, and how long that took."""

    texts: Sequence[str]
    seconds: float


class Subject(Protocol):
    """Somebody who remembers and can be asked."""

    @property
    def name(self) -> str:
        """As the figures have it."""
        ...

    async def remember(self, principal: str, sessions: Sequence[Session]) -> None:
        """Return when all that was said can be found.

        Raises:
            NotRememberedError: it was refused, or took too long.
        """
        ...

    async def search(self, principal: str, question: str) -> Found:
        """The best results for one user, over all sessions."""
        ...


@dataclass(frozen=True)
class Ours:
    """Our service: each turn has its speaker as role, and its date.

    Where a model extracts facts, its prompts know users and assistants, as the peers do.
    """

    address: Address
    admin: asyncpg.Connection
    """A superuser's, to see what work is left."""
    infer: bool = False
    name: str = "ours"

    async def remember(self, principal: str, sessions: Sequence[Session]) -> None:
        """Write all sessions, and wait until no work is left."""
        for session in sessions:
            await _write(
                self.address,
                Owner(principal, session.id),
                [self._turn(turn, session) for turn in session.turns],
                infer=self.infer,
            )
        await _until(self.name, self._done)

    async def search(self, principal: str, question: str) -> Found:
        """Facts at the user level."""
        return await _recall(self.address, principal, question)

    def _turn(self, turn: Turn, session: Session) -> dict[str, str]:
        spoken = _line(turn) if self.infer else {"role": turn.speaker, "content": turn.text}
        return {**spoken, "said_at": session.said_at.isoformat()}

    async def _done(self) -> bool:
        [(left, dead)] = await self.admin.fetch(
            "SELECT count(*), count(*) FILTER (WHERE dead) FROM kaos_memory.work WHERE NOT waiting"
        )
        if dead:
            raise NotRememberedError(f"{self.name} has given {dead} pieces of work up")
        return left == 0


@dataclass(frozen=True)
class Published:
    """The published service. Only turns that leave its window become facts.

    So its window is as small as it can be, and each session ends with a turn that stays in it.
    """

    address: Address
    admin: asyncpg.Connection
    name: str = f"kaos-memory-{peer.VERSION}"

    async def remember(self, principal: str, sessions: Sequence[Session]) -> None:
        """Write all sessions, and wait until each turn is a fact."""
        for session in sessions:
            turns = [_line(turn) for turn in session.turns]
            stays = {"role": "user", "content": "The end."}
            await _write(self.address, Owner(principal, session.id), [*turns, stays], infer=False)
        expected = sum(len(session.turns) for session in sessions)
        await _until(self.name, lambda: self._has(principal, expected))

    async def search(self, principal: str, question: str) -> Found:
        """Facts at the user level."""
        return await _recall(self.address, principal, question)

    async def _has(self, principal: str, expected: int) -> bool:
        # Its list ends at 1,000 facts.
        count = "SELECT count(*) FROM kaos_memory WHERE payload ->> 'user_id' = $1"
        return await self.admin.fetchval(count, principal) == expected


def _line(turn: Turn) -> dict[str, str]:
    return {"role": "user", "content": turn.line}


async def _write(
    address: Address, owner: Owner, turns: Sequence[dict[str, str]], *, infer: bool
) -> None:
    body = {"attribution": owner.named(), "turns": turns, "infer": infer}
    url = f"http://{address.host}:{address.port}"
    async with httpx.AsyncClient(base_url=url, timeout=_ANSWER_SECONDS) as client:
        answer = await client.post("/v1/write", json=body)
    if not (answer.is_success and answer.json()["accepted"]):
        raise NotRememberedError(f"a write was answered {answer.status_code}: {answer.text}")


async def _recall(address: Address, principal: str, question: str) -> Found:
    body = {
        "scope": {"level": "user", "principal": principal},
        "query": question,
        "top_k": TOP,
        "include": ["long_term"],
    }
    request = wire.post("/v1/recall", body)
    proof = b'"degraded":false'
    timing = await run(address, [[request]], proof=proof, seconds=_ANSWER_SECONDS)
    answer: dict[str, Any] = orjson.loads(timing.last_body)
    texts = [fact["memory"] for fact in answer["long_term"]["facts"]]
    return Found(texts, timing.latencies[0])


async def _until(name: str, remembered: Callable[[], Awaitable[bool]]) -> None:
    deadline = time.monotonic() + _REMEMBER_SECONDS
    while not await remembered():
        if time.monotonic() > deadline:
            raise NotRememberedError(f"{name} has not remembered everything in time")
        await asyncio.sleep(_POLL_SECONDS)
