"""A reranking model behind the endpoint that Cohere, Jina, LiteLLM and others share: `/rerank`."""

import math
from collections.abc import Iterator, Sequence
from typing import Any

import orjson

from kaos_memory.engine.endpoint import Endpoint
from kaos_memory.engine.plain_text import clipped
from kaos_memory.engine.usage import CallListener
from kaos_memory.settings import Model

RERANK_SECONDS = 5.0

MAX_DOCUMENTS = 100
"""Documents of one call, the first; a call's price and time grow with each."""
MAX_DOCUMENT_BYTES = 2_000
"""Bytes of one document that are read, its beginning; of the query as well. Common models read 512
tokens of the two together, and servers differ in whether they cut or refuse what is longer."""

_BYTES_PER_RESULT = 6 * MAX_DOCUMENT_BYTES + 500
"""Some servers send each document back, at worst with all its characters escaped."""


class EndpointReranker:
    """Orders documents by what a model says about each of them beside the query.

    Args:
        model: The model and its endpoint.
        seconds: The deadline of a call.
        listeners: Are told of each call.
    """

    def __init__(
        self,
        model: Model,
        *,
        seconds: float = RERANK_SECONDS,
        listeners: Sequence[CallListener] = (),
    ) -> None:
        self._model = model.model
        self._endpoint = Endpoint(
            "rerank",
            model,
            seconds=seconds,
            most_bytes=_BYTES_PER_RESULT * MAX_DOCUMENTS,
            listeners=listeners,
        )

    async def aclose(self) -> None:
        """Close all connections."""
        await self._endpoint.aclose()

    async def rerank(self, query: str, documents: Sequence[str]) -> list[int]:
        """The documents' indices, the most relevant first: each of them exactly once.

        Equal scores keep the given order. What is not read or not scored follows in the given
        order: blank documents, those beyond `MAX_DOCUMENTS`, and what the endpoint leaves out.
        Nothing is asked where there is nothing to order, or the query is blank.

        Raises:
            ModelError: the endpoint failed, or answered with no result, with an index that is
                out of range or given twice, or with a score that is no finite number.
        """
        everything = range(len(documents))
        # Servers refuse a whole call for one blank text.
        read = [index for index in everything[:MAX_DOCUMENTS] if documents[index].strip()]
        if len(read) < 2 or not query.strip():
            return list(everything)
        texts = [clipped(documents[index], MAX_DOCUMENT_BYTES) for index in read]
        asked = clipped(query, MAX_DOCUMENT_BYTES)
        answer = await self._endpoint.post(
            "rerank",
            {"model": self._model, "query": asked, "documents": texts, "top_n": len(texts)},
        )
        scores = {read[at]: score for at, score in self._scores(answer, len(texts)).items()}
        ranked = sorted(scores, key=lambda index: (-scores[index], index))
        return [*ranked, *(index for index in everything if index not in scores)]

    def _scores(self, answer: bytes, documents: int) -> dict[int, float]:
        try:
            results = list(_results(orjson.loads(answer)["results"]))
        except (ValueError, LookupError, TypeError):
            raise self._endpoint.error("did not answer with scores of documents") from None
        scores = dict(results)
        if len(scores) != len(results) or not all(0 <= index < documents for index in scores):
            raise self._endpoint.error(f"answered with wrong indices for {documents} documents")
        if not scores:
            raise self._endpoint.error(f"answered without a score for {documents} documents")
        return scores


def _results(results: Any) -> Iterator[tuple[int, float]]:
    for result in results:
        index, score = result["index"], result["relevance_score"]
        # By type: to Python, true is an integer and a number.
        if type(index) is not int or type(score) not in {int, float} or not math.isfinite(score):
            raise TypeError
        yield index, score
