"""`python -m bench`: measure, show, and fail where an expectation is missed."""

import asyncio
import os
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
import uvloop
from rich.console import Console

from bench import report
from bench.course import run_all
from bench.expectations import judge
from bench.plan import FULL, QUICK
from bench.processes import command_line, model_server
from kaos_dev.embedded_postgres import EmbeddedPostgres

console = Console(width=150)

_SERVER = {"shared_buffers": "2GB", "max_wal_size": "8GB"}
"""A server for a store of this size; with the default 128 MB, indexes would be read from files."""


def main(
    *,
    quick: Annotated[bool, typer.Option("--quick", help="Two minutes, for a first look.")] = False,
    save: Annotated[bool, typer.Option("--save", help="Write docs/benchmarks/.")] = False,
    rounds: Annotated[int | None, typer.Option(min=1, help="Rounds to take medians of.")] = None,
) -> None:
    """Measure our service beside a floor and the published kaos-memory; exit code 1 if missed."""
    plan = QUICK if quick else FULL
    if rounds:
        plan = replace(plan, rounds=rounds)
    began = time.monotonic()
    _warn_if_busy()
    with ExitStack() as stack:
        logs = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kaos-bench-")))
        # fsync stays on: what is called written is on the disk, for every subject.
        postgres = stack.enter_context(EmbeddedPostgres(settings=_SERVER))
        models = stack.enter_context(model_server(logs / "models.log"))
        status = stack.enter_context(console.status("starting"))
        runner = stack.enter_context(asyncio.Runner(loop_factory=uvloop.new_event_loop))

        def say(what: str) -> None:
            line = f"{time.monotonic() - began:.0f} s: {what}"
            status.update(line)
            if not console.is_terminal:
                console.print(line, style="dim")

        results = runner.run(run_all(postgres, models, logs, plan, say))
    rows, outcomes = results.rows(), judge(results)
    report.show(console, rows, outcomes)
    console.print(f"{time.monotonic() - began:.0f} s on {report.machine()}", style="dim")
    if save:
        made_by = f"`{command_line(sys.argv[1:])}` ({plan.rounds} rounds of load)"
        for path in report.save(rows, outcomes, made_by):
            console.print(f"wrote {path}", style="dim")
    if not all(outcome.met for outcome in outcomes):
        raise typer.Exit(1)


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
