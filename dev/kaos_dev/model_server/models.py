"""The models that the server offers, their names and limits."""

import re
from dataclasses import dataclass
from typing import Final

CHAT_MODEL: Final = "kaos-deterministic"
"""The name of the rules that answer chats."""
EMBEDDING_MODEL: Final = "all-MiniLM-L6-v2"
"""A real embedding model: similar meaning, similar vector. 384 dimensions, 5 ms a sentence."""

RERANK_MODEL: Final = "kaos-rerank"
"""The name of the rule that scores documents."""


@dataclass(frozen=True)
class ChatModel:
    """A chat model; limits in tokens."""

    name: str
    context_length: int = 128_000
    max_output: int = 16_384


@dataclass(frozen=True)
class EmbeddingModel:
    """An embedding model.

    `semantic` ones are a real model. The others derive the vector from a hash of the text: equal
    texts are equal, different ones are nearly orthogonal. `shortens`: takes fewer `dimensions`.
    """

    name: str
    dimensions: int
    semantic: bool = False
    shortens: bool = False
    context_length: int = 8192


_CHAT_MODELS: Final = {name: ChatModel(name) for name in (CHAT_MODEL, "gpt-4o-mini")}
_EMBEDDING_MODELS: Final = {
    model.name: model
    for model in (
        EmbeddingModel(EMBEDDING_MODEL, 384, semantic=True),
        EmbeddingModel("all-minilm", 384, semantic=True),
        EmbeddingModel("text-embedding-3-small", 1536, shortens=True),
        EmbeddingModel("text-embedding-3-large", 3072, shortens=True),
    )
}
_HASH_MODEL: Final = re.compile(r"hash-([1-9]\d{0,3})")


def model_names() -> list[str]:
    """Return the listed names; `hash-<dimensions>` works for any dimension up to 9999 as well."""
    return [*_CHAT_MODELS, *_EMBEDDING_MODELS, "hash-384", "hash-1536", RERANK_MODEL]


def chat_model(name: str) -> ChatModel | None:
    """Return the chat model of that name."""
    return _CHAT_MODELS.get(name)


def embedding_model(name: str) -> EmbeddingModel | None:
    """Return the embedding model of that name."""
    if match := _HASH_MODEL.fullmatch(name):
        return EmbeddingModel(name, int(match[1]))
    return _EMBEDDING_MODELS.get(name)


def is_rerank_model(name: str) -> bool:
    """Tell whether a name scores documents: embedding models do too, as on servers of both."""
    return name == RERANK_MODEL or embedding_model(name) is not None
