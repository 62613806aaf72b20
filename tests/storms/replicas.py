"""Replicas that crash, one after the other at every named step and at random, and come back."""

import asyncio
import contextlib
import random
import time
from collections import Counter, deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from pathlib import Path

import httpx

from kaos_dev import crash_points
from kaos_dev.service_process import ServiceFailedError, ServiceProcess, free_port

ANYWHERE = ""
"""In place of a step: killed from outside, whatever it does."""
LEASE_SECONDS = "4"
_READY_SECONDS = 60.0
_PATIENCE_SECONDS = 5.0
"""How long a ready replica may take to reach its step; then it is killed, and gets another try."""


class Replica:
    """One replica: the same port at each start, and one log."""

    def __init__(self, environment: Mapping[str, str], log: Path, luck: random.Random) -> None:
        self._environment = {**environment, crash_points.LEASE_SECONDS: LEASE_SECONDS}
        self._log = log
        self._luck = luck
        self._port = free_port()
        self._process: ServiceProcess | None = None
        self._http = httpx.AsyncClient(base_url=self.url, timeout=2)
        self.kills = 0
        """How often it was killed from outside."""

    @property
    def url(self) -> str:
        """Where it answers while it lives."""
        return f"http://127.0.0.1:{self._port}"

    async def crash(self, steps: deque[str]) -> None:
        """Live and die until no step is left. A step that was not reached goes back."""
        passages = (1, 2, 3)
        while steps:
            step = steps.popleft()
            if not await self._die_at(step, self._luck.choice(passages)):
                steps.append(step)
                passages = (1,)

    async def live(self) -> None:
        """Start for good."""
        self._process = self._new({})
        await asyncio.to_thread(self._process.start, wait=False)
        await self._until(lambda: False, self._ready, _READY_SECONDS)
        assert await self._ready()

    async def pause(self) -> None:
        """SIGTERM, if it lives."""
        process, self._process = self._process, None
        if process is not None:
            await asyncio.to_thread(process.stop)

    async def stop(self) -> None:
        """Pause for ever."""
        await self._http.aclose()
        await self.pause()

    def crashes(self) -> Counter[str]:
        """How often it died at which step."""
        if not self._log.exists():
            return Counter()
        lines = self._log.read_text(errors="replace").splitlines()
        mark = crash_points.CRASHED
        return Counter(line.removeprefix(mark) for line in lines if line.startswith(mark))

    async def _die_at(self, step: str, passage: int) -> bool:
        crashed = self.crashes()[step]
        process = self._new({crash_points.AT: step, crash_points.PASSAGE: str(passage)})
        await asyncio.to_thread(process.start, wait=False)
        try:
            # Its workers wait for nobody, so that it may be gone before it is ready.
            await self._until(lambda: process.ended, self._ready, _READY_SECONDS)
            patience = self._luck.uniform(0.2, 3) if step == ANYWHERE else _PATIENCE_SECONDS
            await self._until(lambda: process.ended, None, patience)
            killed = not process.ended
        finally:
            await asyncio.to_thread(process.kill)
        self.kills += killed
        if not killed and self.crashes()[step] == crashed:
            raise ServiceFailedError(self._log.read_text(errors="replace")[-2_000:])
        return not killed or step == ANYWHERE

    async def _ready(self) -> bool:
        try:
            return (await self._http.get("/readyz")).status_code == 200
        except httpx.TransportError:
            return False

    async def _until(
        self,
        ended: Callable[[], bool],
        true: Callable[[], Awaitable[bool]] | None,
        seconds: float,
    ) -> None:
        """Wait until the process has ended, the condition holds, or time is over."""
        deadline = time.monotonic() + seconds
        while not ended() and time.monotonic() < deadline:
            if true is not None and await true():
                return
            await asyncio.sleep(0.05)

    def _new(self, armed: Mapping[str, str]) -> ServiceProcess:
        environment = {**self._environment, **armed}
        return ServiceProcess(environment, self._log, self._port, module=crash_points.__name__)


@contextlib.asynccontextmanager
async def stopped_after(*replicas: Replica) -> AsyncGenerator[None]:
    """Stop the replicas at the end, whatever happened."""
    try:
        yield
    finally:
        for replica in replicas:
            await replica.stop()
