"""The two kinds of model: chat and embeddings, each behind an OpenAI-compatible endpoint."""

import json
import math
from collections.abc import Iterator, Sequence
from typing import Any

import orjson

from kaos_memory.engine.endpoint import Endpoint
from kaos_memory.engine.plain_text import clean, clipped
from kaos_memory.engine.protocols import ModelError
from kaos_memory.engine.usage import CallListener
from kaos_memory.settings import Model

CHAT_SECONDS = 60.0
EMBEDDING_SECONDS = 15.0
MAX_CHAT_ANSWER_BYTES = 2_097_152

MAX_EMBEDDED_BYTES = 8_000
"""Bytes of one text that are embedded, its beginning. OpenAI's models refuse more than 8,191 tokens
and a token has at least one byte, so that no text is refused whatever the tokenizer."""
MAX_TEXTS_PER_CALL = 64
MAX_BYTES_PER_CALL = 256_000
"""OpenAI refuses more than 300,000 tokens in one call."""

_MAX_LEARNT_DIMS = 16_384
_BYTES_PER_NUMBER = 32
_UNIT_TOLERANCE = 1e-3


class ChatModel:
    """A chat model.

    Neither `max_tokens` nor a temperature is sent: OpenAI's reasoning models refuse them, and an
    answer that is cut off at the model's own limit is recognised by its finish reason.

    Args:
        model: The model and its endpoint.
        seconds: The deadline of a call.
        listeners: Are told of each call.
    """

    def __init__(
        self,
        model: Model,
        *,
        seconds: float = CHAT_SECONDS,
        listeners: Sequence[CallListener] = (),
    ) -> None:
        self._model = model.model
        self._endpoint = Endpoint(
            "summarization",
            model,
            seconds=seconds,
            most_bytes=MAX_CHAT_ANSWER_BYTES,
            listeners=listeners,
        )

    async def aclose(self) -> None:
        """Close all connections."""
        await self._endpoint.aclose()

    async def complete(self, system: str, user: str, *, as_json: bool = False) -> str:
        """The whole text of the answer, without NUL and lone surrogates.

        `as_json` asks for a JSON object; the prompts must then hold the word JSON.

        Raises:
            ModelError: no answer, or one that is refused, cut off, or not text.
        """
        body: dict[str, Any] = {
            "model": self._model,
            "messages": [
                {"role": "system", "content": clean(system)},
                {"role": "user", "content": clean(user)},
            ],
        }
        if as_json:
            body["response_format"] = {"type": "json_object"}
        async with self._endpoint.call("chat/completions", body) as answer:
            return self._text(answer)

    def _text(self, answer: bytes) -> str:
        try:
            # Not orjson: it refuses the whole answer for one lone surrogate.
            choice: Any = json.loads(answer)["choices"][0]
            reason, content = choice.get("finish_reason"), choice["message"].get("content")
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
            raise self._endpoint.error("did not answer with a chat completion") from None
        if reason == "length":
            raise self._endpoint.error("cut its answer off (finish_reason length)")
        if reason == "content_filter":
            raise self._endpoint.error("withheld its answer (finish_reason content_filter)")
        if not isinstance(content, str) or not content.strip():
            raise self._endpoint.error("answered without text")
        return clean(content)


class OpenAIEmbedder:
    """Embeddings of fixed dimensions, each of length 1.

    Args:
        model: The model and its endpoint.
        dims: The length of every vector; None to hold to that of the first one.
        seconds: The deadline of a call.
        listeners: Are told of each call.
    """

    def __init__(
        self,
        model: Model,
        dims: int | None,
        *,
        seconds: float = EMBEDDING_SECONDS,
        listeners: Sequence[CallListener] = (),
    ) -> None:
        self._model = model.model
        self._dims = dims
        self._ask_for_dims = False
        """Whether the model's own dimensions are others and the endpoint obeys `dimensions`."""
        longest = (dims or _MAX_LEARNT_DIMS) + 4_096
        self._endpoint = Endpoint(
            "embedding",
            model,
            seconds=seconds,
            most_bytes=longest * _BYTES_PER_NUMBER * MAX_TEXTS_PER_CALL,
            listeners=listeners,
        )

    async def aclose(self) -> None:
        """Close all connections."""
        await self._endpoint.aclose()

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """One vector for each text, in order; of a long text its beginning counts.

        Raises:
            ModelError: the endpoint failed, or answered with other counts or dimensions, or
                with numbers that are not finite, or with a vector of length 0.
        """
        vectors: list[list[float]] = []
        for batch in _batches([clipped(text, MAX_EMBEDDED_BYTES) for text in texts]):
            vectors += await self._of_right_dims(batch)
        return vectors

    async def _of_right_dims(self, texts: Sequence[str]) -> list[list[float]]:
        """Ask without `dimensions`, which many models refuse; with it where that is not enough."""
        vectors = await self._ask(texts, with_dims=self._ask_for_dims)
        self._dims = self._dims or len(vectors[0])
        if self._wrong_dims(vectors) is not None and not self._ask_for_dims:
            wrong = self._wrong_dims(vectors)
            try:
                vectors = await self._ask(texts, with_dims=True)
            except ModelError:
                raise self._other_dims(wrong) from None
            self._ask_for_dims = self._wrong_dims(vectors) is None
        wrong = self._wrong_dims(vectors)
        if wrong is not None:
            raise self._other_dims(wrong)
        return vectors

    def _wrong_dims(self, vectors: Sequence[Sequence[float]]) -> int | None:
        return next((len(vector) for vector in vectors if len(vector) != self._dims), None)

    def _other_dims(self, found: int | None) -> ModelError:
        return self._endpoint.error(
            f"answered with vectors of {found} dimensions where the store has {self._dims}"
        )

    async def _ask(self, texts: Sequence[str], *, with_dims: bool) -> list[list[float]]:
        body: dict[str, Any] = {"model": self._model, "input": list(texts)}
        if with_dims:
            body["dimensions"] = self._dims
        async with self._endpoint.call("embeddings", body) as answer:
            return self._vectors(answer, len(texts))

    def _vectors(self, answer: bytes, texts: int) -> list[list[float]]:
        try:
            rows = orjson.loads(answer)["data"]
            by_index = {row["index"]: row["embedding"] for row in rows}
            if len(rows) != texts or by_index.keys() != set(range(texts)):
                raise self._endpoint.error(
                    f"answered with {len(rows)} vectors or other indices for {texts} texts"
                )
            return [self._unit(by_index[index]) for index in range(texts)]
        except (ValueError, LookupError, TypeError, AttributeError):
            raise self._endpoint.error("did not answer with embeddings") from None

    def _unit(self, vector: Any) -> list[float]:
        """Scaled to length 1, so that half precision neither overflows nor loses small vectors."""
        if not isinstance(vector, list):
            raise TypeError
        numbers: list[float] = vector
        length = math.hypot(*numbers)
        if not math.isfinite(length) or length == 0:
            raise self._endpoint.error("answered with a vector of no finite length above 0")
        if abs(length - 1) <= _UNIT_TOLERANCE:
            return [float(number) for number in numbers]
        return [number / length for number in numbers]


def _batches(texts: Sequence[str]) -> Iterator[list[str]]:
    batch: list[str] = []
    size = 0
    for text in texts:
        added = len(text.encode())
        if batch and (len(batch) == MAX_TEXTS_PER_CALL or size + added > MAX_BYTES_PER_CALL):
            yield batch
            batch, size = [], 0
        batch.append(text)
        size += added
    if batch:
        yield batch
