"""What lies in the stores before anything is measured, and proof that both return it."""

from collections.abc import Sequence

import asyncpg
import orjson

from bench import wire
from bench.cells import WINDOW_TURNS, window_turns
from bench.known_facts import TOP, KnownFacts
from bench.load import Address, run
from bench.subjects import Subject
from bench.wire import Owner

_SECONDS = 60.0


async def prepare(
    subject: Subject,
    admin: asyncpg.Connection,
    windows: Sequence[Owner],
    facts: Sequence[KnownFacts],
) -> None:
    """Fill windows through the API, and facts directly; then read one of each back.

    Raises:
        RuntimeError: the subject does not return what was put in.
    """
    owners = [*windows, *(known.owner for known in facts)]
    writes = [wire.write(owner, window_turns(owner)) for owner in owners]
    await run(subject.address, [writes], proof=b'"scheduled":false', seconds=_SECONDS)
    if await _window(subject.address, windows[0]) != window_turns(windows[0]):
        raise RuntimeError(f"{subject.name} does not return the {WINDOW_TURNS} turns of a window")
    for known in facts:
        # The published service makes its table when it is first asked.
        await _facts(subject.address, known, known.questions[0])
        await subject.seed_facts(admin, known)
        found = await _facts(subject.address, known, known.questions[0])
        if len(found) != TOP:
            raise RuntimeError(f"{subject.name} returns {len(found)} facts instead of {TOP}")


async def recall_at_10(subject: Subject, known: KnownFacts, questions: int) -> float:
    """The mean over the first questions, against the exact ranking."""
    shares = [
        known.recall_at_10(number, await _facts(subject.address, known, known.questions[number]))
        for number in range(questions)
    ]
    return sum(shares) / len(shares)


async def _window(address: Address, owner: Owner) -> list[tuple[str, str]]:
    answer = await _ask(address, wire.window_recall(owner))
    return [(role, content) for role, content in answer["short_term"]["window"]]


async def _facts(address: Address, known: KnownFacts, question: str) -> list[str]:
    answer = await _ask(address, wire.full_recall(known.owner, question))
    return [fact["memory"] for fact in answer["long_term"]["facts"]]


async def _ask(address: Address, request: bytes) -> dict[str, dict[str, list[dict[str, str]]]]:
    timing = await run(address, [[request]], proof=b'"degraded":false', seconds=_SECONDS)
    return orjson.loads(timing.last_body)
