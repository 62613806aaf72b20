"""The course of a run: starts, then a store that grows, then users who are forgotten."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

from bench import bulk, cells
from bench.erasing import forget_users
from bench.known_facts import stages
from bench.ours import Ours, our_service
from bench.peer_process import PeerProcess
from bench.plan import Plan
from bench.processes import ModelEndpoint, PlainProcess, bare_service
from bench.published import Published
from bench.rounds import Cell, Key, Results, play
from bench.seeding import crowd, fill_stage, fill_windows, recall_at_10
from bench.starts import Starting, measure_starts
from bench.subjects import Floor, Subject
from kaos_dev.embedded_postgres import EmbeddedPostgres
from kaos_dev.service_process import ServiceProcess

Say = Callable[[str], None]
Three = tuple[ServiceProcess, PlainProcess, PlainProcess]

_LOGIN = "bench"


async def run_all(
    postgres: EmbeddedPostgres, models: ModelEndpoint, logs: Path, plan: Plan, say: Say
) -> Results:
    """Measure everything that the plan names."""
    postgres.create_owner(_LOGIN, "not-a-secret")
    results = Results()
    # With a loop that does nothing, and nothing else running.
    await asyncio.to_thread(
        _starts, _processes(postgres, models, logs, "starts"), plan, results, say
    )
    async with AsyncExitStack() as stack:
        three = _processes(postgres, models, logs, "store")
        for process in three:
            await asyncio.to_thread(process.start)
            stack.callback(process.stop)
        connections = [
            await stack.enter_async_context(bulk.connected(postgres.dsn(database)))
            for database in _databases("store")
        ]
        ours = Ours(three[0], connections[0])
        await ours.prove_row_security(_LOGIN)
        subjects = (ours, Published(three[1], connections[1]))
        floor = Floor(three[2], connections[2])
        await _Load(subjects, floor, models, plan, results, say).run()
    return results


@dataclass(frozen=True)
class _Load:
    """All that is measured on running services."""

    subjects: Sequence[Subject]
    floor: Floor
    models: ModelEndpoint
    plan: Plan
    results: Results
    say: Say

    async def run(self) -> None:
        """Conversations while the store is small; recalls at each of its sizes; then erasures."""
        plan, owners = self.plan, cells.window_owners(self.plan.sessions)
        services = (*self.subjects, self.floor)
        self.say("filling windows")
        for service in services:
            await fill_windows(service, owners)
        grown = stages(plan.stores, plan.forgotten, plan.erasing_rounds)
        for stage in grown:
            for subject in self.subjects:
                self.say(f"filling the store of {subject.name} up to {stage.facts:,} facts")
                await fill_stage(subject, stage)
            groups = cells.full_recalls(self.subjects, stage)
            if stage is grown[0]:
                groups += cells.embeddings(self.models)
                groups += cells.writes(services)
                groups += cells.window_recalls(services, owners)
            await self._play(groups, f"{stage.facts:,} facts")
            self.say("comparing recall with the exact ranking")
            for subject in self.subjects:
                share = await recall_at_10(subject, stage.questions[: plan.questions])
                for clients in cells.CLIENTS:
                    key = Key("full_recall", subject.name, clients, stage.facts)
                    self.results.recall_at_10[key] = share
        self.say("forgetting users")
        await forget_users(self.subjects, grown[-1], plan.erasing_rounds, self.results)
        for subject in self.subjects:
            await crowd(subject, plan.window_rows)
        crowded = cells.writes(self.subjects, plan.window_rows)
        await self._play(crowded, f"{plan.window_rows:,} window rows")

    async def _play(self, groups: list[list[Cell]], what: str) -> None:
        def say(number: int) -> None:
            self.say(f"{what}: round {number + 1} of {self.plan.rounds}")

        self.say(f"{what}: warming up")
        await play(groups, self.plan.effort, self.plan.rounds, self.results, say)


def _databases(purpose: str) -> list[str]:
    return [f"{purpose}_{name}" for name in ("ours", "published", "floor")]


def _processes(
    postgres: EmbeddedPostgres, models: ModelEndpoint, logs: Path, purpose: str
) -> Three:
    """Our service, the published one, and the floor, each with a new database."""
    for database in _databases(purpose):
        postgres.create_database(database, owner=_LOGIN)
    ours, published, floor = (postgres.dsn(name, _LOGIN) for name in _databases(purpose))
    return (
        our_service(ours, models, logs / f"{purpose}-ours.log"),
        PeerProcess(published, models, logs / f"{purpose}-published"),
        bare_service(floor, logs / f"{purpose}-floor.log"),
    )


def _starts(three: Three, plan: Plan, results: Results, say: Say) -> None:
    ours, published, floor = three
    compared = [
        Starting("ours", ours, extracts=True),
        Starting(Published.name, published, extracts=True),
        Starting("floor", floor, extracts=False),
    ]
    measure_starts(
        compared, plan.starts, results, lambda number: say(f"start {number + 1} of {plan.starts}")
    )
