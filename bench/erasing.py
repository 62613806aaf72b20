"""Forgetting users: one request each, and a count of what is left of them."""

from collections.abc import Sequence

from bench import wire
from bench.known_facts import Stage
from bench.load import run
from bench.rounds import Figures, Key, Results, in_turn
from bench.subjects import Subject, address

_SECONDS = 60.0


async def forget_users(
    subjects: Sequence[Subject], stage: Stage, rounds: int, results: Results
) -> None:
    """Forget the stage's users, the small ones first.

    Raises:
        LoadFailedError: the answer does not say what it must; for ours that is a receipt of a
            scan that found nothing.
    """
    for number in range(rounds):
        for count, tenants in stage.forgotten.items():
            owner = tenants[number].owner
            for subject in in_turn(subjects, number):
                request, proof = wire.forget(owner), subject.forgotten
                timing = await run(address(subject), [[request]], proof=proof, seconds=_SECONDS)
                left = await subject.facts_left(owner)
                results.add(
                    Key("forget_user", subject.name, 1, count),
                    Figures(p50_ms=timing.percentile_ms(1), facts_left=left),
                )
