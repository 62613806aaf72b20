"""Scores of documents: how many of the query's words each of them holds."""

from collections.abc import Sequence
from typing import Any

from kaos_dev.model_server.requests import RerankRequest
from kaos_dev.model_server.sentences import words


def ranked(request: RerankRequest) -> list[dict[str, Any]]:
    """Return the results, best first, as many as are asked for."""
    scores = [_score(request.query, document) for document in request.documents]
    best = sorted(range(len(scores)), key=lambda index: (-scores[index], index))
    return [
        {"index": index, "relevance_score": scores[index]} | _document(request, index)
        for index in best[: request.top_n]
    ]


def _score(query: str, document: str) -> float:
    """Between 0 and 1, as the real ones."""
    asked: Sequence[str] = list(dict.fromkeys(words(query)))
    held = set(words(document))
    return sum(word in held for word in asked) / max(1, len(asked))


def _document(request: RerankRequest, index: int) -> dict[str, Any]:
    return {"document": {"text": request.documents[index]}} if request.return_documents else {}
