"""`make demo` and `make dev`: the whole chain on this machine, without a cluster."""

import asyncio
import json
import signal
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

import httpx
import typer
from rich.console import Console
from rich.panel import Panel
from rich.table import Table

from kaos_dev.conversations import SUPPORT
from kaos_dev.embedded_postgres import EmbeddedPostgresError
from kaos_dev.environment import Environment, running
from kaos_dev.model_endpoint import VARIABLES, ModelEndpointError
from kaos_dev.service_process import PortInUseError, ServiceFailedError

_AGENT = "kaos://agent/demo/support-assistant"
_ALICE = {"principal": "alice", "agent_client_id": _AGENT, "session_id": SUPPORT.id}
_BOB = {"principal": "bob", "agent_client_id": _AGENT, "session_id": SUPPORT.id}
_QUESTION = "Why did the export fail?"
_BACKGROUND_SECONDS = 60.0

_MODELS = f"Models: {VARIABLES} name an OpenAI-compatible endpoint; without, a bundled one answers."
_ENDING = (signal.SIGTERM, signal.SIGHUP)

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


class DemoFailedError(Exception):
    """What the demo shows did not come about."""


@app.callback()
def _exit_in_order_when_told_to_end() -> None:  # pyright: ignore[reportUnusedFunction]
    """The whole chain on this machine, without a cluster."""
    for number in _ENDING:
        if signal.getsignal(number) is not signal.SIG_IGN:  # as under `nohup`
            signal.signal(number, _exit)


def _exit(number: int, _frame: FrameType | None) -> None:
    """End what was started, on the way out; a second signal must not cut that short."""
    for other in _ENDING:
        signal.signal(other, signal.SIG_IGN)
    raise SystemExit(128 + number)


@app.command(epilog=_MODELS)
def demo(
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object only.")] = False,
) -> None:
    """Play a support conversation and show the three tiers before and after."""
    console = Console(stderr=as_json, quiet=as_json)
    started = time.monotonic()
    with (
        _errors_in_one_line(as_json=as_json),
        _folder() as folder,
        running(Path(folder), lambda step: _step(console, step)) as found,
    ):
        _say_which_models(console, found)
        result = asyncio.run(_play(console, found))
    result["seconds"] = round(time.monotonic() - started, 1)
    if as_json:
        typer.echo(json.dumps(result, indent=2))
    else:
        console.print(f"\nDone in {result['seconds']} s. Next: `make dev`, or the README.")


@app.command(epilog=_MODELS)
def dev(
    port: Annotated[int, typer.Option(min=1, max=65_535, help="Where the service listens.")] = 8080,
) -> None:
    """Keep a store running for work on the service; Ctrl-C ends it."""
    console = Console()
    with (
        _errors_in_one_line(),
        _folder() as folder,
        running(Path(folder), lambda step: _step(console, step), port) as found,
    ):
        _say_which_models(console, found)
        console.print(f"\nService   {found.service.url}\nLog       {found.service.log}")
        console.print(f"Database  {found.postgres.dsn(found.database)}", soft_wrap=True)
        scope = {"level": "session", **_ALICE}
        body = json.dumps({"scope": scope, "query": "export"})
        console.print(
            f"\ncurl {found.service.url}/v1/recall -H 'content-type: application/json' -d '{body}'",
            soft_wrap=True,
            markup=False,
        )
        try:
            while True:
                time.sleep(3600)
        except KeyboardInterrupt:
            console.print("\nEnding.")


@contextmanager
def _errors_in_one_line(*, as_json: bool = False) -> Generator[None]:
    """Say what went wrong and exit with 1, without a traceback of ours."""
    try:
        yield
    except (
        DemoFailedError,
        EmbeddedPostgresError,
        ModelEndpointError,
        ServiceFailedError,
    ) as error:
        remedy = "; choose another: make dev PORT=..." if isinstance(error, PortInUseError) else ""
        if as_json:
            typer.echo(json.dumps({"passed": False, "error": f"{error}{remedy}"}))
        else:
            typer.secho(f"error: {error}{remedy}", fg="red", err=True)
        raise typer.Exit(1) from None


def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="kaos-demo-")


def _step(console: Console, step: str) -> None:
    console.print(f"[dim]· {step}[/dim]")


def _say_which_models(console: Console, found: Environment) -> None:
    console.print(f"  {found.models}", style="dim", markup=False)


async def _play(console: Console, found: Environment) -> dict[str, Any]:
    async with httpx.AsyncClient(base_url=found.service.url, timeout=30) as client:
        before = await _recall(client, _ALICE)
        _show(console, "Before the conversation", before)
        console.print("\n[bold]Alice talks to the support assistant[/bold]")
        for role, content in SUPPORT.turns:
            console.print(f"  [cyan]{role:>9}[/cyan]  {content}")
            turns = [{"role": role, "content": content}]
            answer = await client.post("/v1/write", json={"attribution": _ALICE, "turns": turns})
            answer.raise_for_status()
        await _settled(found)
        after = await _recall(client, _ALICE)
        _show(console, "After it, as the assistant recalls it for Alice", after)
        other = await _recall(client, _BOB)
        _show(console, "The same question, agent and session id, asked by Bob", other)
        scope = {"level": "user", "principal": "alice"}
        forgotten = (await client.post("/v1/forget", json={"scope": scope})).json()
        receipt = forgotten.get("receipt", {})
        console.print(
            f"\n[bold]Alice is forgotten:[/bold] {receipt.get('turns')} turns, "
            f"{receipt.get('digests')} digests, {receipt.get('facts')} facts; "
            f"{receipt.get('residue')} rows left; receipt {receipt.get('id')}"
        )
        gone = await _recall(client, _ALICE)
    shown = {
        "nothing before the conversation": _is_empty(before),
        "turns in the window": after["short_term"]["window"],
        "a digest": after["medium_term"]["summary"],
        "facts": after["long_term"]["facts"],
        "nothing for Bob": _is_empty(other),
        "a receipt": forgotten["forgotten"],
        "nothing after it": _is_empty(gone),
    }
    missing = [what for what, there in shown.items() if not there]
    if missing:
        raise DemoFailedError(f"the demo did not show {', '.join(missing)}")
    return {
        "passed": True,
        "before": before,
        "after": after,
        "bob": other,
        "forget": forgotten,
        "after_forget": gone,
    }


async def _recall(client: httpx.AsyncClient, who: dict[str, str]) -> dict[str, Any]:
    body = {"scope": {"level": "user", **who}, "query": _QUESTION, "top_k": 5}
    answer = await client.post("/v1/recall", json=body)
    answer.raise_for_status()
    return answer.json()


async def _settled(found: Environment) -> None:
    """Wait until background work has filled every tier."""
    deadline = time.monotonic() + _BACKGROUND_SECONDS
    while True:
        work = await asyncio.to_thread(found.background_work)
        if work.failure is not None:
            advice = "" if found.models.bundled else f"; check {VARIABLES}"
            raise DemoFailedError(f"background work fails: {work.failure}{advice}")
        if work.pending == 0:
            return
        if time.monotonic() > deadline:
            raise DemoFailedError(f"background work takes more than {_BACKGROUND_SECONDS:g} s")
        await asyncio.sleep(0.2)


def _is_empty(answer: dict[str, Any]) -> bool:
    return not (
        answer["short_term"]["window"]
        or answer["medium_term"]["summary"]
        or answer["long_term"]["facts"]
    )


def _show(console: Console, title: str, answer: dict[str, Any]) -> None:
    table = Table(show_header=False, expand=True, box=None, padding=(0, 1))
    table.add_column(style="bold", width=12, no_wrap=True)
    table.add_column()
    window = "\n".join(f"{role}: {content}" for role, content in answer["short_term"]["window"])
    facts = "\n".join(
        f"{fact.get('score', 0):.2f}  {fact['memory']}" for fact in answer["long_term"]["facts"]
    )
    nothing = "[dim]nothing[/dim]"
    table.add_row("short term", window or nothing)
    table.add_row("medium term", answer["medium_term"]["summary"] or nothing)
    table.add_row("long term", facts or nothing)
    console.print()
    console.print(Panel(table, title=title, title_align="left"))


if __name__ == "__main__":
    app()
