"""What lies in the stores before it is measured, and proof that every subject returns it."""

from collections.abc import Sequence
from itertools import islice
from typing import Any

import orjson

from bench import wire
from bench.cells import WINDOW_TURNS, window_turns
from bench.conversation import turns
from bench.known_facts import TOP, Question, Stage
from bench.load import run
from bench.subjects import Service, Subject, address
from bench.wire import Owner

_SECONDS = 60.0
_CROWD_SAMPLES = 40
_PROOFS = 10
_OK = b'"degraded":false'


async def fill_windows(service: Service, owners: Sequence[Owner]) -> None:
    """Write through the API, and read one back.

    Raises:
        RuntimeError: the service does not return what was put in.
    """
    requests = [wire.write(owner, window_turns(owner)) for owner in owners]
    await run(address(service), [requests], proof=b'"scheduled":false', seconds=_SECONDS)
    answer = await _ask(service, wire.window_recall(owners[0]))
    window = [(role, content) for role, content in answer["short_term"]["window"]]
    if window != window_turns(owners[0]):
        raise RuntimeError(f"{service.name} does not return the {WINDOW_TURNS} turns of a window")


async def fill_stage(subject: Subject, stage: Stage) -> None:
    """Let the store grow to the stage's facts, and ask it once.

    Raises:
        RuntimeError: the subject does not know the facts.
    """
    # The published service makes its table when it is first asked.
    await _answer(subject, stage.questions[0])
    for tenant in stage.asked:
        talk = wire.write(tenant.owner, window_turns(tenant.owner))
        await run(address(subject), [[talk]], proof=_OK, seconds=_SECONDS)
    await subject.seed_facts(stage.added)
    await subject.admin.execute("CHECKPOINT")
    if not any([await _answer(subject, each) for each in stage.questions[:_PROOFS]]):
        raise RuntimeError(f"{subject.name} knows none of {stage.facts:,} facts")


async def crowd(subject: Subject, rows: int) -> None:
    """Put turns of other sessions into the windows."""
    await subject.seed_crowd(rows, [text for _, text in islice(turns("crowd"), _CROWD_SAMPLES)])
    await subject.admin.execute("CHECKPOINT")


async def recall_at_10(subject: Subject, questions: Sequence[Question]) -> float:
    """The mean over questions, against the exact ranking."""
    shares = [each.recall_at_10(await _answer(subject, each)) for each in questions]
    return sum(shares) / len(shares)


async def _answer(subject: Subject, question: Question) -> list[str]:
    answer = await _ask(subject, wire.full_recall(question.tenant.owner, question.text))
    return [fact["memory"] for fact in answer["long_term"]["facts"]][:TOP]


async def _ask(service: Service, request: bytes) -> dict[str, Any]:
    timing = await run(address(service), [[request]], proof=_OK, seconds=_SECONDS)
    return orjson.loads(timing.last_body)
