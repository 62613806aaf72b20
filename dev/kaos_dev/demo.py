"""`make demo` and `make dev`: the whole chain on this machine, without a cluster."""

import asyncio
import json
import tempfile
import time
from pathlib import Path
from typing import Annotated, Any

import httpx
import typer
from rich.console import Console
from rich.panel import Panel
from rich.table import Table

from kaos_dev.conversations import SUPPORT
from kaos_dev.environment import BUNDLED_MODELS, Environment, running

_AGENT = "kaos://agent/demo/support-assistant"
_ALICE = {"principal": "alice", "agent_client_id": _AGENT, "session_id": SUPPORT.id}
_BOB = {"principal": "bob", "agent_client_id": _AGENT, "session_id": SUPPORT.id}
_QUESTION = "Why did the export fail?"
_BACKGROUND_SECONDS = 60.0

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def demo(
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object only.")] = False,
) -> None:
    """Play a support conversation and show the three tiers before and after."""
    console = Console(stderr=as_json, quiet=as_json)
    started = time.monotonic()
    with _folder() as folder, running(Path(folder), lambda step: _step(console, step)) as found:
        _say_which_models(console, found)
        result = asyncio.run(_play(console, found.service.url))
    result["seconds"] = round(time.monotonic() - started, 1)
    if as_json:
        typer.echo(json.dumps(result, indent=2))
    else:
        console.print(f"\nDone in {result['seconds']} s. Next: `make dev`, or the README.")
    if not result["passed"]:
        raise typer.Exit(1)


@app.command()
def dev(
    port: Annotated[int, typer.Option(help="Where the service listens.")] = 8080,
) -> None:
    """Keep a store running for work on the service; Ctrl-C ends it."""
    console = Console()
    with (
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


def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="kaos-demo-")


def _step(console: Console, step: str) -> None:
    console.print(f"[dim]· {step}[/dim]")


def _say_which_models(console: Console, found: Environment) -> None:
    if found.models.bundled:
        console.print(f"[dim]  No OPENAI_BASE_URL is set: {BUNDLED_MODELS}.[/dim]")


async def _play(console: Console, url: str) -> dict[str, Any]:
    async with httpx.AsyncClient(base_url=url, timeout=30) as client:
        before = await _recall(client, _ALICE)
        _show(console, "Before the conversation", before)
        console.print("\n[bold]Alice talks to the support assistant[/bold]")
        for role, content in SUPPORT.turns:
            console.print(f"  [cyan]{role:>9}[/cyan]  {content}")
            turns = [{"role": role, "content": content}]
            answer = await client.post("/v1/write", json={"attribution": _ALICE, "turns": turns})
            answer.raise_for_status()
        after = await _settled(client)
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
    passed = bool(
        _is_empty(before)
        and after["short_term"]["window"]
        and after["medium_term"]["summary"]
        and after["long_term"]["facts"]
        and _is_empty(other)
        and forgotten["forgotten"]
        and _is_empty(gone)
    )
    return {
        "passed": passed,
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


async def _settled(client: httpx.AsyncClient) -> dict[str, Any]:
    """The recall once background work has filled every tier, or what there is in the end."""
    deadline = time.monotonic() + _BACKGROUND_SECONDS
    known = -1
    while True:
        found = await _recall(client, _ALICE)
        facts = len(found["long_term"]["facts"])
        if found["medium_term"]["summary"] and 0 < facts == known:
            return found
        if time.monotonic() > deadline:
            return found
        known = facts
        await asyncio.sleep(0.5)


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
