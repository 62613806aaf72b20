"""Embeddings of queries: remembered, and not asked for where the endpoint keeps failing."""

import asyncio
import hashlib
from array import array
from collections import OrderedDict
from collections.abc import Sequence

from kaos_memory.engine.circuit_breaker import CircuitBreaker
from kaos_memory.engine.plain_text import clean
from kaos_memory.engine.protocols import Embedder, ModelError, ModelUnavailable


class CachedEmbedder:
    """For queries: remembers the latest vectors, and asks once for what several ask for at once.

    Texts are remembered by their digest only. A failure is not remembered, but after several in a
    row the endpoint is left alone for a while, and what is not remembered is refused at once.

    Args:
        embedder: Who is asked.
        entries: How many vectors are remembered.
        late_seconds: An answer that takes longer counts as a failure, and is still remembered.
        breaker: Says whether to ask.
    """

    def __init__(
        self,
        embedder: Embedder,
        *,
        entries: int = 256,
        late_seconds: float = 1.5,
        breaker: CircuitBreaker | None = None,
    ) -> None:
        self._embedder = embedder
        self._late_seconds = late_seconds
        self._breaker = breaker or CircuitBreaker()
        self._entries = entries
        self._vectors: OrderedDict[bytes, array[float]] = OrderedDict()
        self._asked: dict[bytes, asyncio.Task[list[float]]] = {}

    async def aclose(self) -> None:
        """End the calls that run. The embedder behind stays open: others may share it."""
        asked = list(self._asked.values())
        for task in asked:
            task.cancel()
        await asyncio.gather(*asked, return_exceptions=True)

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """One vector for each text, in order.

        Raises:
            ModelError: the embedder behind it could not answer.
            ModelUnavailable: it could not several times in a row, and was not asked.
        """
        return list(await asyncio.gather(*(self._one(text) for text in texts)))

    async def _one(self, text: str) -> list[float]:
        key = hashlib.blake2b(clean(text).encode(), digest_size=16).digest()
        known = self._vectors.get(key)
        if known is not None:
            self._vectors.move_to_end(key)
            return known.tolist()
        task = self._asked.get(key)
        if task is None:
            if not self._breaker.may_ask():
                raise ModelUnavailable("the endpoint failed repeatedly and is left alone")
            task = asyncio.create_task(self._ask(key, text))
            self._asked[key] = task
            task.add_done_callback(lambda done: self._answered(key, done))
        # A caller that gives up must not take the answer from the others.
        return await asyncio.shield(task)

    async def _ask(self, key: bytes, text: str) -> list[float]:
        loop = asyncio.get_running_loop()
        late = loop.call_later(self._late_seconds, self._breaker.failed)
        try:
            [vector] = await self._embedder.embed([text])
            if loop.time() < late.when():
                self._breaker.answered()
        except ModelError:
            if loop.time() < late.when():
                self._breaker.failed()
            raise
        finally:
            late.cancel()
        self._vectors[key] = array("d", vector)
        if len(self._vectors) > self._entries:
            self._vectors.popitem(last=False)
        return vector

    def _answered(self, key: bytes, task: asyncio.Task[list[float]]) -> None:
        del self._asked[key]
        if not task.cancelled():
            task.exception()  # seen, even if every caller has given up
