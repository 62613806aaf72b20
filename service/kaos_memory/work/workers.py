"""The background workers of a replica: claim, ask a model, commit. No state but leases."""

import asyncio
import logging
import random
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial

from kaos_memory.engine.protocols import (
    FactExtractor,
    ModelError,
    ModelUnavailable,
    Neighbour,
    Summariser,
)
from kaos_memory.engine.still_wanted import asking_only_while
from kaos_memory.engine.usage import TokenMeter
from kaos_memory.storage.protocol import (
    Batch,
    Lease,
    LeaseLost,
    Storage,
    StorageUnavailable,
    WorkKind,
)
from kaos_memory.telemetry.catalogue import WorkOutcome
from kaos_memory.telemetry.spans import Measured, Telemetry
from kaos_memory.work.budget import Budget

POLL_SECONDS = 1.0
"""How often an idle worker looks for work of other replicas, or for work whose wait is over."""

LEASE = timedelta(seconds=30)
"""How long after a crash the work of a replica is taken over. Running work renews its lease."""

_RELEASE_SECONDS = 2.0
"""How long a stopped worker may take to give its lease back; a lease runs out by itself too."""

_FIRST_RETRY_SECONDS = 1.0
_LONGEST_RETRY_SECONDS = 300.0

_log = logging.getLogger(__name__)


class Workers:
    """A bounded number of workers; each does one piece of work at a time.

    Args:
        storage: Has the work.
        summariser: Folds turns into digests.
        extractor: Takes facts from turns.
        count_tokens: Counts a digest's tokens.
        concurrency: The workers.
        max_retries: Further attempts before failed work is dead.
        lease_for: After how long work is taken over if it is not renewed.
        meter: Sums the tokens of the models' calls.
        daily_token_budget: Tokens of the whole store after which extraction waits for the next
            day (UTC). Calls in flight may take more. 0: no limit.
        telemetry: Is told of each attempt.
    """

    def __init__(
        self,
        storage: Storage,
        summariser: Summariser,
        extractor: FactExtractor,
        count_tokens: Callable[[str], int],
        *,
        concurrency: int,
        max_retries: int,
        lease_for: timedelta = LEASE,
        meter: TokenMeter | None = None,
        daily_token_budget: int = 0,
        telemetry: Telemetry | None = None,
    ) -> None:
        self._storage = storage
        self._summariser = summariser
        self._extractor = extractor
        self._count_tokens = count_tokens
        self._lease_for = lease_for
        self._concurrency = concurrency
        self._max_retries = max_retries
        self._budget = Budget(storage, meter or TokenMeter(), daily_token_budget)
        self._telemetry = telemetry or Telemetry()
        self._woken = asyncio.Event()
        self._stopping = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Start all workers."""
        self._tasks = [
            asyncio.create_task(self._run(), name=f"worker-{number}")
            for number in range(self._concurrency)
        ]

    def wake(self) -> None:
        """Say that work is due now."""
        self._woken.set()

    async def stop(self, grace_seconds: float) -> None:
        """Let running work end; after the grace period give its leases back."""
        self._stopping.set()
        self._woken.set()
        if not self._tasks:
            return
        _, running = await asyncio.wait(self._tasks, timeout=grace_seconds)
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running, timeout=_RELEASE_SECONDS)

    async def _run(self) -> None:
        while not self._stopping.is_set():
            # Cleared before looking: a wake that comes after this ends the wait below at once.
            self._woken.clear()
            try:
                lease = await self._storage.claim(self._lease_for, await self._budget.only())
                if lease is not None:
                    self._woken.set()  # where one is due, others may be: let an idle worker look
                    try:
                        await self._do(lease)
                    finally:
                        await self._budget.charge()
                    continue
            except StorageUnavailable as error:
                _log.warning("work_storage_unavailable", extra={"reason": str(error)})
            except Exception:  # noqa: BLE001
                # A defect in one piece of work must not end the worker for all others.
                _log.exception("work_crashed")
            await self._idle()

    async def _idle(self) -> None:
        try:
            async with asyncio.timeout(POLL_SECONDS * random.uniform(0.5, 1.0)):  # noqa: S311
                await self._woken.wait()
        except TimeoutError:
            pass

    async def _do(self, lease: Lease) -> None:
        with self._telemetry.work(lease.kind) as attempt:
            try:
                await self._renewing(lease, attempt)
            except LeaseLost as error:
                # If it is ours still, only what it was about has changed: it is due at once again.
                attempt.end_as(WorkOutcome.LOST, error)
                _log.info("work_lease_lost", extra={"kind": lease.kind})
                await self._storage.release(lease)
            except ModelUnavailable as error:
                attempt.end_as(WorkOutcome.POSTPONED, error)
                self._say(lease, str(error), dead=False)
                wait = backoff(lease.attempt, error.retry_after)
                await self._storage.postpone(lease, str(error), wait)
            except ModelError as error:
                attempt.end_as(await self._fail(lease, str(error)), error)
            except StorageUnavailable:
                raise  # the lease runs out by itself
            except asyncio.CancelledError:
                await asyncio.shield(self._storage.release(lease))
                raise
            except Exception as error:
                attempt.end_as(await self._fail(lease, type(error).__name__), error)
                raise

    async def _renewing(self, lease: Lease, attempt: Measured[WorkOutcome]) -> None:
        """Do the work; while it runs, its lease is renewed, and lost with the lease."""
        work = asyncio.create_task(self._work(lease, attempt))
        try:
            while not (await asyncio.wait({work}, timeout=self._lease_for.total_seconds() / 3))[0]:
                try:
                    await self._storage.renew(lease, self._lease_for)
                except StorageUnavailable as error:
                    # The commit will find out whether the lease has lasted.
                    _log.warning("lease_not_renewed", extra={"reason": str(error)})
            await work
        finally:
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)

    async def _work(self, lease: Lease, attempt: Measured[WorkOutcome]) -> None:
        batch = await self._storage.load(lease)
        if batch is not None:
            attempt.note(attempt=lease.attempt, turns=len(batch.turns))
            # A lease is gone with what it was about: no model sees again what was erased meanwhile.
            with asking_only_while(partial(self._storage.renew, lease, self._lease_for)):
                await self._commit(batch)

    async def _commit(self, batch: Batch) -> None:
        if batch.lease.kind is WorkKind.FOLD:
            told = [turn for turn in batch.turns if turn.content.strip()]
            summary = batch.digest.summary
            if told:
                summary = await self._summariser.fold(batch.digest, told)
            await self._storage.commit_fold(batch, summary, self._count_tokens(summary))
            return

        async def neighbours(embedding: Sequence[float], most: int) -> list[Neighbour]:
            return await self._storage.neighbours(batch.owner, embedding, most)

        found = await self._extractor.extract(batch.owner, batch.turns, neighbours)
        await self._storage.commit_extraction(batch, found.facts, found.repeated)

    async def _fail(self, lease: Lease, reason: str) -> WorkOutcome:
        dead = lease.failures >= self._max_retries
        self._say(lease, reason, dead=dead)
        await self._storage.fail(lease, reason, None if dead else backoff(lease.attempt))
        return WorkOutcome.DEAD if dead else WorkOutcome.RETRIED

    def _say(self, lease: Lease, reason: str, *, dead: bool) -> None:
        _log.warning(
            "work_failed",
            extra={"kind": lease.kind, "reason": reason, "attempt": lease.attempt, "dead": dead},
        )


def backoff(attempt: int, asked: float | None = None) -> timedelta:
    """How long to wait after the given attempt (1 for the first).

    Doubles from a second to five minutes, with jitter; a longer wish of the endpoint is kept to.
    """
    doubled = min(_LONGEST_RETRY_SECONDS, _FIRST_RETRY_SECONDS * 2 ** min(attempt - 1, 20))
    wait = doubled * random.uniform(0.5, 1.0)  # noqa: S311 - spreads load, guards nothing
    return timedelta(seconds=max(wait, min(asked or 0.0, _LONGEST_RETRY_SECONDS)))
