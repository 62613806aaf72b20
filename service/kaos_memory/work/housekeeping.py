"""What a replica does by the clock: retention, indexes for large owners, a look at the queue."""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable

from kaos_memory.settings import Retention
from kaos_memory.storage.protocol import Storage, StorageUnavailable
from kaos_memory.telemetry.instruments import Instruments

RETAIN_SECONDS = 300.0
INDEX_SECONDS = 600.0
LOOK_SECONDS = 10.0
BATCH = 1_000
"""Records of a kind that one transaction deletes."""

_log = logging.getLogger(__name__)


class Housekeeping:
    """Runs beside the workers. Several replicas may do the same at once; nothing is done twice."""

    def __init__(self, storage: Storage, retention: Retention, instruments: Instruments) -> None:
        self._storage = storage
        self._retention = retention
        self._instruments = instruments
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Begin."""
        self._tasks = [
            asyncio.create_task(_every(RETAIN_SECONDS, self.retain), name="retention"),
            asyncio.create_task(_every(INDEX_SECONDS, self.index), name="indexes"),
            asyncio.create_task(_every(LOOK_SECONDS, self.look), name="queue"),
        ]

    async def stop(self) -> None:
        """End at once: what is half done rolls back."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def retain(self) -> None:
        """Delete everything that is over age, in batches."""
        while True:
            deleted = await self._storage.retain(self._retention, BATCH)
            for kind, rows in deleted.items():
                if rows:
                    self._instruments.retention_ended(kind, rows)
                    _log.info("retention_ended", extra={"kind": kind, "rows": rows})
            if all(rows < BATCH for rows in deleted.values()):
                return

    async def index(self) -> None:
        """Make the indexes that are missing by now."""
        made = await self._storage.index_large_owners()
        if made:
            _log.info("facts_indexed", extra={"indexes": made})

    async def look(self) -> None:
        """Report the queue."""
        counts = await self._storage.work_summary()
        self._instruments.queue((c.kind, c.state, c.count, c.oldest_seconds) for c in counts)


async def _every(seconds: float, do: Callable[[], Awaitable[None]]) -> None:
    """Do something now and then; what fails is said and done the next time."""
    while True:
        try:
            await do()
        except StorageUnavailable as error:
            _log.warning("housekeeping_storage_unavailable", extra={"reason": str(error)})
        except Exception:  # noqa: BLE001 - a defect here must not end it for ever
            _log.exception("housekeeping_failed")
        await asyncio.sleep(seconds * random.uniform(0.8, 1.2))  # noqa: S311 - spreads load
