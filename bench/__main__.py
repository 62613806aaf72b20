"""`python -m bench`: measure, show, and fail where an expectation is missed."""

import asyncio
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack, ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import asyncpg
import typer
import uvloop
from rich.console import Console

from bench import report
from bench.cells import CLIENTS, Effort, Scene, groups, window_owners, window_turns
from bench.expectations import EXPECTATIONS
from bench.floors import raw_tables
from bench.known_facts import known_facts
from bench.load import Address
from bench.processes import ModelEndpoint, command_line, model_server, nothing
from bench.rounds import Key, Results, play
from bench.seeding import prepare, recall_at_10
from bench.subjects import Ours, Published, running
from kaos_dev.embedded_postgres import EmbeddedPostgres

console = Console(width=110)


@dataclass(frozen=True)
class Plan:
    """How much is measured."""

    effort: Effort
    rounds: int
    facts: Sequence[int]
    sessions: int
    questions: int
    """Asked to tell recall@10."""


@dataclass(frozen=True)
class Processes:
    """All that runs besides this process, which is the load."""

    postgres: EmbeddedPostgres
    models: ModelEndpoint
    nothing: Address
    ours: Ours
    published: Published


def main(
    *,
    quick: Annotated[bool, typer.Option("--quick", help="One minute, for a first look.")] = False,
    save: Annotated[bool, typer.Option("--save", help="Write docs/benchmarks/.")] = False,
    rounds: Annotated[int | None, typer.Option(min=1, help="Rounds to take medians of.")] = None,
    facts: Annotated[
        list[int] | None,
        typer.Option(min=100, help="Facts of the owner that is asked about; repeatable. [1000]"),
    ] = None,
    sessions: Annotated[int, typer.Option(min=1, help="Sessions whose windows are read.")] = 100,
) -> None:
    """Measure our service beside floors and the published kaos-memory; exit code 1 if missed."""
    plan = Plan(
        effort=Effort(500, 0.7) if quick else Effort(2_000, 2.0),
        rounds=rounds or (3 if quick else 7),
        facts=facts or [1_000],
        sessions=sessions,
        questions=50 if quick else 200,
    )
    began = time.monotonic()
    _warn_if_busy()
    with ExitStack() as stack:
        processes = _start(stack)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            results = runner.run(_measure(processes, plan))
    rows = results.rows()
    outcomes = [each.check(results, processes.published.name) for each in EXPECTATIONS]
    report.show(console, rows, outcomes)
    console.print(f"{time.monotonic() - began:.0f} s on {report.machine()}", style="dim")
    if save:
        for path in report.save(rows, outcomes, command_line(sys.argv[1:]), plan.rounds):
            console.print(f"wrote {path}", style="dim")
    if not all(outcome.met for outcome in outcomes):
        raise typer.Exit(1)


def _start(stack: ExitStack) -> Processes:
    logs = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kaos-bench-")))
    # fsync stays on: what is called written is on the disk, for every subject.
    postgres = stack.enter_context(EmbeddedPostgres())
    models = stack.enter_context(model_server(logs / "models.log"))
    empty = stack.enter_context(nothing(logs / "nothing.log"))
    ours, published = stack.enter_context(running(postgres, models, logs))
    console.print(f"ours: process {ours.pid}; {published.name}: process {published.pid}")
    return Processes(postgres, models, empty, ours, published)


async def _measure(processes: Processes, plan: Plan) -> Results:
    subjects = (processes.ours, processes.published)
    windows = window_owners(plan.sessions)
    facts = [known_facts(count) for count in plan.facts]
    async with AsyncExitStack() as stack:
        measured: list[tuple[Ours | Published, asyncpg.Connection]] = []
        for subject in subjects:
            admin = await asyncpg.connect(processes.postgres.dsn(subject.database))
            stack.push_async_callback(admin.close)
            await prepare(subject, admin, windows, facts)
            measured.append((subject, admin))
        await processes.ours.prove_row_security(measured[0][1])
        processes.postgres.create_database("floor")
        said = [window_turns(owner) for owner in windows]
        dsn = processes.postgres.dsn("floor")
        raw = await stack.enter_async_context(raw_tables(dsn, said, max(CLIENTS)))
        scene = Scene(measured, processes.models, processes.nothing, raw, facts, windows)
        cells = list(groups(scene))
        with console.status("warming up") as status:
            results = await play(
                cells,
                plan.effort,
                plan.rounds,
                lambda number: status.update(f"round {number + 1} of {plan.rounds}"),
            )
            status.update("comparing recall with the exact ranking")
            for known in facts:
                for subject in subjects:
                    share = await recall_at_10(subject, known, plan.questions)
                    for clients in CLIENTS:
                        key = Key("full_recall", subject.name, clients, len(known.texts))
                        results.recall_at_10[key] = round(share, 4)
    return results


def _warn_if_busy() -> None:
    load, cores = os.getloadavg()[0], os.cpu_count() or 1
    if load > cores / 2:
        console.print(
            f"load average {load:.1f} on {cores} cores: others are at work, so read the ratios, "
            "which are taken within rounds, rather than the times",
            style="yellow",
        )


if __name__ == "__main__":
    typer.run(main)
