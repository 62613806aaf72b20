"""`make e2e`: deploy the `dev` stack with the real engine on a real cluster, and prove it there."""

import asyncio
import contextlib
import json
import secrets
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from tests.e2e import models, observation, outage, steps, target
from tests.e2e.cluster import lifecycle, tools
from tests.e2e.cluster.errors import ClusterError
from tests.e2e.cluster.paths import existing_kubeconfig
from tests.e2e.deployment import Deployment
from tests.e2e.failure import E2EError
from tests.e2e.store import Store

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@dataclass
class Report:
    """The steps so far, with times."""

    console: Console
    rows: list[tuple[str, float, str]] = field(default_factory=list[tuple[str, float, str]])

    def step(self, name: str, action: Callable[[], Any]) -> Any:
        """Run a step; what it returns as text is shown beside it."""
        self.console.print(f"[dim]· {name}[/dim]")
        started = time.monotonic()
        try:
            result = action()
        except BaseException:
            self.rows.append((name, time.monotonic() - started, "FAILED"))
            raise
        shown = result if isinstance(result, str) else ""  # a step says nothing secret
        self.rows.append((name, time.monotonic() - started, shown))
        return result

    def table(self) -> Table:
        """All steps, as people would rather look."""
        table = Table("step", "seconds", "seen")
        for name, seconds, shown in self.rows:
            table.add_row(name, f"{seconds:.1f}", shown)
        table.add_row("all", f"{sum(row[1] for row in self.rows):.1f}", "")
        return table


@app.command()
def e2e(
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object only.")] = False,
    keep: Annotated[bool, typer.Option(help="Leave the cluster running afterwards.")] = False,
) -> None:
    """Deploy, play, update, break, destroy; exit code 1 where anything that must hold does not."""
    report = Report(Console(stderr=as_json, highlight=False))
    failure = ""
    try:
        _run(report)
    except (E2EError, ClusterError) as error:
        failure = str(error)
    finally:
        if not keep and not existing_kubeconfig():
            lifecycle.down(report=lambda _message: None)
    if as_json:
        rows = [{"step": n, "seconds": round(s, 1), "seen": w} for n, s, w in report.rows]
        typer.echo(json.dumps({"passed": not failure, "failure": failure, "steps": rows}))
    else:
        report.console.print(report.table())
    if failure:
        report.console.print(failure, style="red", markup=False)
        sys.exit(1)
    # The plain line that any runner's log can be judged by.
    report.console.print(f"{len(report.rows)} passed, 0 failed", markup=False)


def _run(report: Report) -> None:
    if not existing_kubeconfig():
        report.step("cluster tools", _build_tools)
        report.step("cluster up", lambda: lifecycle.up(fresh=True, report=lambda _message: None))
    images = report.step("images built and loaded", target.build_images)
    key = secrets.token_hex(16)
    report.step("model endpoint", lambda: models.deploy(images.models, key))
    with tempfile.TemporaryDirectory(prefix="kaos-e2e-") as folder:
        deployment = Deployment(Path(folder), images, key)
        try:
            stores = _deployed(report, deployment)
            _prove(report, deployment, stores)
        except BaseException:
            report.console.print(target.diagnosis(), markup=False)
            with contextlib.suppress(E2EError):
                deployment.destroy()
            raise
        report.step("pulumi destroy", deployment.destroy)
        report.step("nothing left", lambda: steps.nothing_left(stores))
    report.step("model endpoint removed", models.remove)


def _build_tools() -> str:
    built = [tool.name for tool in tools.TOOLS if tools.build(tool, lambda _seconds: None)]
    return f"built {', '.join(built)}" if built else "cached"


def _deployed(report: Report, deployment: Deployment) -> list[Store]:
    outputs = report.step("pulumi up", deployment.up)
    stores = [Store(store["endpoint"]) for store in outputs["stores"].values()]
    if len(stores) != 2:
        raise E2EError(f"the dev stack has {len(stores)} stores")
    return stores


def _prove(report: Report, deployment: Deployment, stores: list[Store]) -> None:
    first, second = stores
    report.step("conversation in three tiers", lambda: asyncio.run(steps.play(first)))
    report.step("tenants apart", lambda: asyncio.run(steps.isolation(first, second)))
    report.step("one user forgotten", lambda: asyncio.run(steps.forget(first)))
    report.step("pulumi up: no changes", lambda: deployment.up(expect_no_changes=True) and "")
    report.step(
        "pulumi preview --refresh: no changes", deployment.preview_refreshed_without_changes
    )
    report.step("no secret in the state", lambda: steps.no_secret_in(deployment.exported(), stores))
    report.step("commands in a replica", lambda: observation.commands(first))
    report.step("metrics", lambda: asyncio.run(observation.metrics(first)))
    report.step("replica killed", lambda: asyncio.run(steps.kill_during_writes(second)))
    report.step(
        "connections terminated", lambda: asyncio.run(outage.connections_terminated(second))
    )
    report.step("database away", lambda: asyncio.run(outage.database_away(second)))


if __name__ == "__main__":
    app()
