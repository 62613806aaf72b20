"""Facts with vectors whose exact ranking for every question is known.

The model server's hash model makes unrelated texts nearly orthogonal, so that nothing would be
similar to anything, and Mem0 drops what is less similar than 0.1. So each fact's vector is a
weighted sum of the vectors of some questions, as a fact touches several topics: every question
has about 20 facts of cosine 0.15 to 0.5 per 1,000, and all others near 0.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from bench.conversation import facts, questions
from bench.wire import Owner
from kaos_dev.model_server.embeddings import embed
from kaos_dev.model_server.models import embedding_model

EMBEDDING_MODEL: Final = "text-embedding-3-small"
"""The published service's default; a hash of 1,536 dimensions in our model server."""
QUESTIONS: Final = 512
"""Asked in turn. More than our service remembers query embeddings (256): each one is embedded."""
TOP: Final = 10

_TOPICS_PER_FACT: Final = 10
_ROUNDING: Final = 1e-4
"""Half-precision storage may swap facts whose similarities differ by less."""

Vectors = npt.NDArray[np.float32]


@dataclass(frozen=True)
class KnownFacts:
    """An owner's facts and what is asked about them."""

    owner: Owner
    texts: Sequence[str]
    vectors: Vectors
    questions: Sequence[str]
    _similarities: npt.NDArray[np.float32]

    def recall_at_10(self, question: int, answered: Sequence[str]) -> float:
        """The share of the ten most similar facts that an answer holds."""
        similarities = self._similarities[question]
        least = np.partition(similarities, -TOP)[-TOP] - _ROUNDING
        by_text = dict(zip(self.texts, similarities, strict=True))
        found = sum(bool(by_text.get(text, -1.0) >= least) for text in set(answered[:TOP]))
        return found / TOP


def known_facts(count: int) -> KnownFacts:
    """Facts of one owner who has so many."""
    owner = Owner(f"facts-{count}", f"facts-{count}-talk")
    asked = questions(QUESTIONS)
    model = embedding_model(EMBEDDING_MODEL)
    assert model is not None
    topics, _ = embed(model, asked, None)
    random = np.random.default_rng(count)
    vectors = np.zeros((count, topics.shape[1]), dtype=np.float32)
    # Balanced: every question is a topic of equally many facts, give or take one.
    dealt = _dealt(random, count * _TOPICS_PER_FACT).reshape(count, _TOPICS_PER_FACT)
    weights = random.uniform(0.5, 1.5, dealt.shape).astype(np.float32)
    for topic in range(_TOPICS_PER_FACT):
        vectors += weights[:, topic, None] * topics[dealt[:, topic]]
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return KnownFacts(owner, facts(count, owner.principal), vectors, asked, topics @ vectors.T)


def _dealt(random: np.random.Generator, count: int) -> npt.NDArray[Any]:
    decks = [random.permutation(QUESTIONS) for _ in range(-(-count // QUESTIONS))]
    return np.concatenate(decks)[:count]
