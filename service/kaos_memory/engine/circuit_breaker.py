"""Leaving an endpoint alone that keeps failing, so that nobody waits for it in vain."""

import time
from collections.abc import Callable


class CircuitBreaker:
    """Says whether to ask an endpoint, by how it answered before.

    After `failures` in a row it is left alone for `rest_seconds`. Then one caller may ask, and the
    others only once that one was answered: or, if it was not, one more after each further rest.

    Args:
        failures: In a row, from 1 on.
        rest_seconds: Longer than an answer may take.
        clock: Seconds that never run backwards.
    """

    def __init__(
        self,
        failures: int = 5,
        rest_seconds: float = 5.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._most = failures
        self._rest = rest_seconds
        self._clock = clock
        self._failures = 0
        self._rests_until = 0.0

    def may_ask(self) -> bool:
        """Whether the caller may ask now. It then says how that went."""
        if self._failures < self._most:
            return True
        now = self._clock()
        if now < self._rests_until:
            return False
        self._rests_until = now + self._rest
        return True

    def answered(self) -> None:
        """An answer came in time."""
        self._failures = 0

    def failed(self) -> None:
        """There was none, or none in time."""
        self._failures += 1
        self._rests_until = self._clock() + self._rest
