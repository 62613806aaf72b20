"""The model tokens of a day that all replicas of a store share."""

import logging
import time

from kaos_memory.engine.usage import TokenMeter
from kaos_memory.storage.protocol import Storage, WorkKind

LOOK_SECONDS = 15.0
"""How often a replica looks at what the others have spent."""

_log = logging.getLogger(__name__)


class Budget:
    """The model tokens of a day that all replicas of a store share."""

    def __init__(self, storage: Storage, meter: TokenMeter, daily_tokens: int) -> None:
        self._storage = storage
        self._meter = meter
        self._daily_tokens = daily_tokens
        self._spent = 0
        self._looked_at = -LOOK_SECONDS

    async def only(self) -> WorkKind | None:
        """The one kind of work that may be done now; None within the budget, where all may be."""
        if not self._daily_tokens:
            return None
        if time.monotonic() - self._looked_at >= LOOK_SECONDS:
            await self._look(0)
        return None if self._spent < self._daily_tokens else WorkKind.FOLD

    async def charge(self) -> None:
        """Count what was spent since the last time."""
        tokens = self._meter.take()
        if not tokens:
            return
        try:
            await self._look(tokens)
        except BaseException:
            self._meter.add(tokens)  # for the next time
            raise

    async def _look(self, tokens: int) -> None:
        within = self._spent < self._daily_tokens
        self._spent = await self._storage.spend(tokens)
        self._looked_at = time.monotonic()
        if self._daily_tokens and within and self._spent >= self._daily_tokens:
            _log.warning("daily_token_budget_spent", extra={"budget": self._daily_tokens})
