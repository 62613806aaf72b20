"""The load: clients that each send one prepared request after the other and time the answers.

A closed loop over kept-alive connections, written on asyncio's protocols: 10 to 20 microseconds
of this process for one request, where a general HTTP client takes 20 times as long and would be
what is measured. All preparing is done before the clock starts.
"""

import asyncio
import gc
import math
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import cast

_HEAD_END = b"\r\n\r\n"
_LENGTH = b"content-length:"
_ANSWER_SECONDS = 60.0


class LoadFailedError(RuntimeError):
    """An answer was not what the measure needs, so that its time would mean nothing."""


@dataclass
class Timing:
    """What one run of a cell measured."""

    latencies: list[float] = field(default_factory=list[float])
    """Seconds from sending a request to the last byte of its answer."""
    seconds: float = 0.0
    last_body: bytes = b""

    @property
    def rps(self) -> float:
        """Answers per second."""
        return len(self.latencies) / self.seconds

    def percentile_ms(self, share: float) -> float:
        """The latency that this share of requests did not exceed, in milliseconds."""
        ranked = sorted(self.latencies)
        return 1_000 * ranked[max(0, math.ceil(share * len(ranked)) - 1)]


@dataclass(frozen=True)
class Address:
    """Where a subject listens."""

    host: str
    port: int


class _Client(asyncio.Protocol):
    """One connection: sends its requests in order until none is left or time is over."""

    def __init__(self, requests: Sequence[bytes], proof: bytes, timing: Timing) -> None:
        self._requests = iter(requests)
        self._proof = proof
        self._timing = timing
        self._buffer = b""
        self._deadline = self._sent = 0.0
        self._transport: asyncio.Transport | None = None
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are of this kind without being instances of it.
        self._transport = cast("asyncio.Transport", transport)

    def begin(self, deadline: float) -> None:
        self._deadline = deadline
        self._send()

    def _send(self) -> None:
        request = next(self._requests, None)
        self._sent = time.perf_counter()
        if request is None or self._sent > self._deadline:
            self._finish(None)
        elif self._transport is not None:
            self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        received = self._buffer + data if self._buffer else data
        head = received.find(_HEAD_END)
        if head >= 0:
            start = head + len(_HEAD_END)
            length = _content_length(received[:head])
            if len(received) >= start + length:
                self._timing.latencies.append(time.perf_counter() - self._sent)
                self._buffer = b""
                self._check(received[:head], received[start:])
                return
        self._buffer = received

    def _check(self, head: bytes, body: bytes) -> None:
        if head[9:10] != b"2" or self._proof not in body:
            self._finish(LoadFailedError(f"{head[:15]!r}, not holding {self._proof!r}: {body!r}"))
            return
        self._timing.last_body = body
        self._send()

    def connection_lost(self, exc: Exception | None) -> None:
        self._finish(LoadFailedError(f"the connection was closed: {exc}"))

    def _finish(self, error: Exception | None) -> None:
        if self.done.done():
            return
        if error is None:
            self.done.set_result(None)
        else:
            self.done.set_exception(error)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()


async def run(
    address: Address, scripts: Sequence[Sequence[bytes]], *, proof: bytes, seconds: float
) -> Timing:
    """Play one script per client, at most so long.

    Args:
        address: Where to.
        scripts: The requests of each client, as bytes on the wire.
        proof: What every answer's body must hold, for example `"degraded":false`.
        seconds: No request starts later than this.

    Raises:
        LoadFailedError: an answer without status 2xx, or without the proof.
    """
    timing = Timing()
    loop = asyncio.get_running_loop()
    clients: list[_Client] = []
    for script in scripts:

        def client(requests: Sequence[bytes] = script) -> _Client:
            return _Client(requests, proof, timing)

        _, connected = await loop.create_connection(client, address.host, address.port)
        clients.append(connected)
    async with clock(timing) as start, asyncio.timeout(seconds + _ANSWER_SECONDS):
        for each in clients:
            each.begin(start + seconds)
        await asyncio.gather(*(each.done for each in clients))
    for each in clients:
        each.close()
    return timing


async def repeat(
    work: Sequence[Callable[[], Awaitable[object]]], *, most: int, seconds: float
) -> Timing:
    """Time calls that are no HTTP: each client repeats its own, `most` times at most."""
    timing = Timing()

    async def client(once: Callable[[], Awaitable[object]], deadline: float) -> None:
        for _ in range(most):
            sent = time.perf_counter()
            if sent > deadline:
                return
            await once()
            timing.latencies.append(time.perf_counter() - sent)

    async with clock(timing) as start:
        await asyncio.gather(*(client(once, start + seconds) for once in work))
    return timing


@asynccontextmanager
async def clock(timing: Timing) -> AsyncGenerator[float]:
    """Take the time of a block, undisturbed by garbage collection; yields when it began."""
    gc.collect()
    gc.disable()
    start = time.perf_counter()
    try:
        yield start
    finally:
        timing.seconds = time.perf_counter() - start
        gc.enable()


def _content_length(head: bytes) -> int:
    lower = head.lower()
    at = lower.find(_LENGTH)
    if at < 0:
        raise LoadFailedError(f"an answer without content-length: {head!r}")
    return int(lower[at + len(_LENGTH) :].split(b"\r\n", 1)[0])
