"""`python -m bench.recall`: measure, show, and fail where a floor is missed."""

import asyncio
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated

import typer
import uvloop
from rich.console import Console
from rich.progress import Progress

from bench.processes import command_line
from bench.recall import report
from bench.recall.floors import check
from bench.recall.locomo import Conversation, conversations
from bench.recall.measures import Row
from bench.recall.playing import by_conversation, for_everybody, on_extracted_facts
from bench.report import machine
from kaos_dev.conversations import locomo_path

console = Console(width=130)


@dataclass(frozen=True)
class Plan:
    """How much is measured."""

    conversations: Sequence[Conversation]
    everybody_turns: int = 3_000
    everybody_questions: int = 300


def main(
    *,
    quick: Annotated[
        bool, typer.Option("--quick", help="One conversation and 30 questions.")
    ] = False,
    save: Annotated[bool, typer.Option("--save", help="Write docs/benchmarks/.")] = False,
) -> None:
    """Measure retrieval on LoCoMo beside two peers; exit code 1 if a floor is missed."""
    path = locomo_path()
    if not path.exists():
        console.print(f"LoCoMo is not at {path} (KAOS_LOCOMO names another place): nothing to do")
        return
    plan = Plan(conversations(path))
    if quick:
        [first, *_] = plan.conversations
        few = replace(first, questions=first.questions[::7][:30])
        plan = Plan([few], everybody_turns=300, everybody_questions=30)
    began = time.monotonic()
    with (
        Progress(console=console, transient=True) as progress,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        rows = runner.run(_measure(plan, progress))
    outcomes = list(check(rows))
    report.show(console, rows, outcomes)
    console.print(f"{time.monotonic() - began:.0f} s on {machine()}", style="dim")
    if save:
        for written in report.save(rows, outcomes, command_line(sys.argv[1:], "bench.recall")):
            console.print(f"wrote {written}", style="dim")
    if not all(outcome.met for outcome in outcomes):
        raise typer.Exit(1)


async def _measure(plan: Plan, progress: Progress) -> list[Row]:
    given = plan.conversations
    return [
        *await by_conversation(given, progress),
        *await for_everybody(given, plan.everybody_turns, plan.everybody_questions, progress),
        *await on_extracted_facts(given[0], progress),
    ]


if __name__ == "__main__":
    typer.run(main)
