"""Time from start to ready, and memory after the first extraction."""

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice

import httpx
import psutil

from bench.conversation import Turn, as_json, turns
from bench.processes import Process, wait_until_ready
from bench.rounds import Figures, Key, Results, in_turn
from bench.wire import Owner

_MEGABYTE = 1_000_000
_MOST_WRITES = 200
_TURNS = 4
_EXTRACTION_SECONDS = 60.0
_POLL_SECONDS = 0.05


@dataclass(frozen=True)
class Starting:
    """A service that is started and stopped, on a database that it has used before."""

    name: str
    process: Process
    extracts: bool


def measure_starts(
    compared: Sequence[Starting], starts: int, results: Results, on_start: Callable[[int], None]
) -> None:
    """Start each so many times; the first start, which makes its tables, is not counted."""
    for number in range(-1, starts):
        on_start(max(number, 0))
        for each in in_turn(compared, number):
            ready_ms, megabytes = _measure(each, f"start-{number}")
            if number >= 0:
                results.add(Key("ready", each.name), Figures(p50_ms=ready_ms))
                results.add(Key("rss_mb", each.name), Figures(value=megabytes))


def _measure(starting: Starting, unique: str) -> tuple[float, float]:
    """Milliseconds until ready, and megabytes after the first extraction."""
    process = starting.process
    began = time.perf_counter()
    process.start(wait=False)
    try:
        wait_until_ready(process)
        ready = time.perf_counter() - began
        if starting.extracts:
            _extract(f"http://127.0.0.1:{process.port}", Owner(unique, f"{unique}-talk"))
        main = psutil.Process(process.pid)
        rss = sum(each.memory_info().rss for each in (main, *main.children(recursive=True)))
        return 1_000 * ready, rss / _MEGABYTE
    finally:
        process.stop()


def _extract(url: str, owner: Owner) -> None:
    """Talk until the window is full, and wait until a fact was made of what left it."""
    said = turns(owner.session)
    with httpx.Client(base_url=url, timeout=30) as client:
        for _ in range(_MOST_WRITES):
            new = as_json([_brief(turn) for turn in islice(said, _TURNS)])
            body = {"attribution": owner.named(), "turns": new}
            if client.post("/v1/write", json=body).raise_for_status().json()["scheduled"]:
                break
        scope = {"level": "user", **owner.named()}
        deadline = time.monotonic() + _EXTRACTION_SECONDS
        while time.monotonic() < deadline:
            asked = {"scope": scope, "include": ["long_term"]}
            answer = client.post("/v1/list", json=asked).raise_for_status().json()
            if answer["long_term"]["facts"]:
                return
            time.sleep(_POLL_SECONDS)
    raise RuntimeError(f"no fact was made of what {owner.principal} said")


def _brief(turn: Turn) -> Turn:
    """One statement by the user, or one question by the assistant.

    The model makes a fact of each statement, and the published service drops them all where that
    answer is longer than 2,000 tokens.
    """
    role, text = turn
    one = re.sub(r"[.?!] ", ", ", text)
    return role, one.replace("?", ".") if role == "user" else one
