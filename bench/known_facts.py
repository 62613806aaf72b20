"""Facts with vectors whose exact ranking for every question is known.

The model server's hash model makes unrelated texts nearly orthogonal, so that nothing would be
similar to anything, and Mem0 drops what is less similar than 0.1. So each fact's vector is a
weighted sum of the vectors of some questions, as a fact touches several topics. An owner talks
about some of the topics: for each there are about 20 facts of cosine 0.15 to 0.5, and all others
are near 0. Many owners talk about the same topics, as people do.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from itertools import cycle
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from bench import neutral
from bench.wire import Owner
from kaos_dev.model_server.embeddings import embed
from kaos_dev.model_server.models import embedding_model

EMBEDDING_MODEL: Final = "text-embedding-3-small"
"""The published service's default; a hash of 1,536 dimensions in our model server."""
TOPICS: Final = 512
"""Asked in turn. More than our service remembers query embeddings (256): each one is embedded."""
TOP: Final = 10

_TOPICS_PER_FACT: Final = 10
_FACTS_PER_TOPIC: Final = 20
_ASKED_TENANTS: Final = 64
_SIZES: Final = (1_000, 200, 800, 400, 600)
"""Facts per owner, in turn."""
_ROUNDING: Final = 1e-4
"""Half-precision storage may swap facts whose similarities differ by less."""

Vectors = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Tenant:
    """An owner of facts. Everything follows from its number and its count."""

    number: int
    count: int

    @property
    def owner(self) -> Owner:
        """Whose the facts are; they were told in one session."""
        return Owner(f"tenant-{self.number}", f"tenant-{self.number}-talk")

    @property
    def texts(self) -> list[str]:
        """The facts, all different."""
        return neutral.facts(self.count, self.owner.principal)

    @property
    def topics(self) -> list[int]:
        """What its facts are about: at least 20 facts a topic where it has 200 or more."""
        most = self.count * _TOPICS_PER_FACT // _FACTS_PER_TOPIC
        first = self.number * 37
        return [(first + step) % TOPICS for step in range(min(TOPICS, max(most, 1)))]

    def vectors(self) -> Vectors:
        """The facts' vectors, of length 1, in the order of the texts."""
        source, about = np.random.default_rng(self.number), np.array(self.topics)
        # Balanced: every topic is one of equally many facts, give or take one.
        dealt = about[_dealt(source, len(about), self.count * _TOPICS_PER_FACT)]
        weights = source.uniform(0.5, 1.5, dealt.shape).astype(np.float32)
        vectors = np.zeros((self.count, topic_vectors().shape[1]), dtype=np.float32)
        for column in range(_TOPICS_PER_FACT):
            some = slice(column, None, _TOPICS_PER_FACT)
            vectors += weights[some, None] * topic_vectors()[dealt[some]]
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


@dataclass(frozen=True)
class Question:
    """A question to one tenant about a topic of its."""

    tenant: Tenant
    topic: int

    @property
    def text(self) -> str:
        """As it is asked."""
        return topic_texts()[self.topic]

    def recall_at_10(self, answered: Sequence[str]) -> float:
        """The share of the tenant's ten most similar facts that an answer holds."""
        similarities = _similarities(self.tenant)[:, self.topic]
        least = np.partition(similarities, -TOP)[-TOP] - _ROUNDING
        places = [_places(self.tenant).get(text) for text in set(answered[:TOP])]
        return sum(bool(similarities[at] >= least) for at in places if at is not None) / TOP


@dataclass(frozen=True)
class Stage:
    """A size of the store: what is added to reach it, and what is asked there."""

    facts: int
    added: Sequence[Tenant]
    asked: Sequence[Tenant]
    forgotten: Mapping[int, Sequence[Tenant]]
    """Those of the added who are erased at the end, by their number of facts."""

    @cached_property
    def questions(self) -> list[Question]:
        """To one tenant after the other, each topic once, so that no answer is remembered."""
        left = {tenant.number: iter(tenant.topics) for tenant in self.asked}
        used: set[int] = set()
        found: list[Question] = []
        for tenant in cycle(self.asked):
            if not left:
                return found
            topics = left.get(tenant.number, iter(()))
            topic = next((topic for topic in topics if topic not in used), None)
            if topic is None:
                left.pop(tenant.number, None)
            else:
                used.add(topic)
                found.append(Question(tenant, topic))
        return found


def stages(sizes: Sequence[int], forgotten: Sequence[int], erasing_rounds: int) -> list[Stage]:
    """Stores of ascending sizes; the last one holds the users who will be erased too.

    Raises:
        ValueError: they do not fit into what the last size adds.
    """
    numbers = iter(range(1_000_000))
    known: list[Tenant] = []
    made: list[Stage] = []
    for size, before in zip(sizes, (0, *sizes[:-1]), strict=True):
        erased = {
            count: [Tenant(next(numbers), count) for _ in range(erasing_rounds)]
            for count in (forgotten if size == sizes[-1] else ())
        }
        room = size - before - erasing_rounds * sum(erased)
        if room < 0:
            raise ValueError(f"{size:,} facts leave no room for the users who are erased")
        kept = [Tenant(next(numbers), count) for count in _split(room)]
        known += kept
        asked = known[:: max(1, len(known) // _ASKED_TENANTS)][:_ASKED_TENANTS]
        gone = [tenant for tenants in erased.values() for tenant in tenants]
        made.append(Stage(size, [*kept, *gone], asked, erased))
    return made


@cache
def topic_texts() -> list[str]:
    """The questions, one for each topic."""
    return neutral.questions(TOPICS)


@cache
def topic_vectors() -> Vectors:
    """What the model server answers for them."""
    model = embedding_model(EMBEDDING_MODEL)
    assert model is not None
    return embed(model, topic_texts(), None)[0]


@lru_cache(_ASKED_TENANTS)
def _places(tenant: Tenant) -> dict[str, int]:
    return {text: at for at, text in enumerate(tenant.texts)}


@lru_cache(_ASKED_TENANTS)
def _similarities(tenant: Tenant) -> Vectors:
    """A row for each fact, a column for each topic."""
    return tenant.vectors() @ topic_vectors().T


def _split(room: int) -> Iterator[int]:
    for size in cycle(_SIZES):
        if room <= 0:
            return
        yield min(size, room)
        room -= size


def _dealt(source: np.random.Generator, topics: int, count: int) -> npt.NDArray[Any]:
    decks = [source.permutation(topics) for _ in range(-(-count // topics))]
    return np.concatenate(decks)[:count]
