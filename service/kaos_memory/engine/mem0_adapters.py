"""What Mem0 calls during one extraction: a model, an embedder and a store, all of them ours.

Mem0 swallows exceptions and reads lenient what models answer. So the first failure is remembered,
ends every later call at once, and is raised by the extractor whatever Mem0 made of it.
"""

import asyncio
import concurrent.futures
import contextvars
import json
import re
import threading
from collections.abc import Callable, Coroutine, Sequence
from datetime import date
from types import SimpleNamespace
from typing import Any, TypeVar

from kaos_memory.engine.answers import fact_texts
from kaos_memory.engine.models import ChatModel
from kaos_memory.engine.protocols import Embedder, ModelError, NeighbourSearch
from kaos_memory.tiers.memory import fact_hash

_OBSERVED = re.compile(r"^(## Observation Date\n).*$", re.MULTILINE)

OUTPUT_FORMAT = """

Answer with JSON only: {"memory": [{"text": "a fact"}, {"text": "another"}]}, or {"memory": []} \
where there is none."""
"""Follows a system prompt of the store's own, so that it need not know what the service reads."""

_T = TypeVar("_T")


class Bridge:
    """Runs coroutines on the event loop for one extraction's thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop, *, seconds: float) -> None:
        self._loop = loop
        self._seconds = seconds
        self._context = contextvars.copy_context()
        self._lock = threading.Lock()
        self._running: concurrent.futures.Future[Any] | None = None
        self.failure: Exception | None = None

    def run(self, start: Callable[[], Coroutine[Any, Any, _T]]) -> _T:
        """The coroutine's result; nothing more is started after the first failure."""
        with self._lock:
            if self.failure is not None:
                raise self.failure
            # In the context of the extraction, which knows whether it is still wanted.
            self._running = running = self._context.run(
                asyncio.run_coroutine_threadsafe, start(), self._loop
            )
        try:
            return running.result(self._seconds)
        except concurrent.futures.CancelledError:
            raise self.failed(ModelError("the extraction was cancelled")) from None
        except TimeoutError:
            running.cancel()
            raise self.failed(ModelError(f"nothing came within {self._seconds:g} s")) from None
        except Exception as error:  # noqa: BLE001 - whatever it is, Mem0 must not hide it
            raise self.failed(error) from None

    def failed(self, error: Exception) -> Exception:
        """Remember the first failure, and return it."""
        self.failure = self.failure or error
        return self.failure

    def cancel(self) -> None:
        """End what runs and let nothing more start."""
        with self._lock:
            self.failed(ModelError("the extraction was cancelled"))
            if self._running is not None:
                self._running.cancel()


class ExtractionModel:
    """In place of Mem0's language model: asks the store's, and reads the answer strictly."""

    def __init__(
        self, bridge: Bridge, chat: ChatModel, *, system_prompt: str, observed: date
    ) -> None:
        self._bridge = bridge
        self._chat = chat
        self._system_prompt = system_prompt
        self._observed = observed
        self.texts: list[str] = []
        """What the model answered."""

    def generate_response(self, messages: Sequence[dict[str, str]], **_: object) -> str:
        """The answer in the one form that Mem0 cannot misread."""
        system, user = (message["content"] for message in messages)
        if self._system_prompt:
            system = self._system_prompt + OUTPUT_FORMAT
        # Mem0 always says today. Contents are on lines of their own, so only its heading matches.
        user = _OBSERVED.sub(rf"\g<1>{self._observed.isoformat()}", user)
        answer = self._bridge.run(lambda: self._chat.complete(system, user, as_json=True))
        try:
            self.texts = fact_texts(answer)
        except ModelError as error:
            raise self._bridge.failed(error) from None
        plain = json.dumps({"memory": [{"text": text} for text in self.texts]})
        # It cuts `<think>…</think>` out of the JSON, even inside a fact.
        return plain.replace("<", "\\u003c")


class ExtractionEmbedder:
    """In place of Mem0's embedding model."""

    def __init__(self, bridge: Bridge, embedder: Embedder) -> None:
        self._bridge = bridge
        self._embedder = embedder

    def embed(self, text: str, *_: object, **__: object) -> list[float]:
        """The vector of one text."""
        return self.embed_batch([text])[0]

    def embed_batch(self, texts: Sequence[str], *_: object, **__: object) -> list[list[float]]:
        """The vectors of several texts."""
        return self._bridge.run(lambda: self._embedder.embed(texts))


class CapturingStore:
    """In place of Mem0's vector store: reads the owner's facts, and keeps what it would insert.

    It is bound to one owner, so that Mem0's own filters decide nothing.
    """

    def __init__(self, bridge: Bridge, neighbours: NeighbourSearch) -> None:
        self._bridge = bridge
        self._neighbours = neighbours
        self.known: set[str] = set()
        """Hashes of the stored facts that Mem0 was shown."""
        self.inserted: list[tuple[str, Sequence[float]]] = []
        """New facts and their vectors."""

    def search(self, *, vectors: Sequence[float], top_k: int, **_: object) -> list[SimpleNamespace]:
        """The owner's facts near a vector, in Mem0's shape."""

        async def near() -> list[SimpleNamespace]:
            return [
                SimpleNamespace(
                    id=fact.id,
                    score=fact.score,
                    payload={"data": fact.text, "hash": fact.hash},
                )
                for fact in await self._neighbours(vectors, top_k)
            ]

        found = self._bridge.run(near)
        self.known.update(row.payload["hash"] for row in found)
        return found

    def insert(
        self, vectors: Sequence[Sequence[float]], payloads: Sequence[dict[str, Any]], **_: object
    ) -> None:
        """Keep facts for the commit."""
        self.inserted += [
            (payload["data"], vector) for payload, vector in zip(payloads, vectors, strict=True)
        ]

    def repeated(self, texts: Sequence[str]) -> set[str]:
        """The hashes of stored facts that are among these texts."""
        return {fact_hash(text) for text in texts} & self.known

    def missing(self, texts: Sequence[str]) -> bool:
        """Whether Mem0 dropped one of the texts that was neither known nor kept."""
        kept = {fact_hash(text) for text, _ in self.inserted} | self.known
        return any(fact_hash(text) not in kept for text in texts)
