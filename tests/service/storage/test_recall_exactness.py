"""Of more than 100,000 facts, a search finds what comparing all of the owner's facts finds.

Row-level security is on, as ever. Only the vectors decide here: what counts beside them is
weighted with nothing, and no word of the query is known.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pytest

from kaos_dev.embedded_postgres import EmbeddedPostgres
from kaos_memory.settings import LongTerm, Ranking
from kaos_memory.storage.postgres.storage import PostgresStorage
from kaos_memory.tiers.reach import Owners

from ..conftest import StorageFactory
from .stored_facts import Stored, store

Vectors = npt.NDArray[np.float32]

DIMS = 64
TOPICS = 300
QUESTIONS = 50
LARGE = {"large": 20_000, "huge": 50_000}
SMALL = [f"user-{number}" for number in range(200)]
ROUNDING = 1e-4
"""Of similarities that are computed in another order."""
ONLY_MEANING = Ranking(
    cosine_weight=1,
    speaker_weight=0,
    question_penalty=0,
    closing_question_penalty=0,
    time_weight=0,
    length_weight=0,
)


@dataclass(frozen=True)
class Population:
    """Everybody's vectors, and questions about the same topics."""

    storage: PostgresStorage
    vectors: dict[str, Vectors]
    questions: Vectors

    async def recall(self, owner: str, question: int, most: int) -> float:
        """The share of an owner's most similar facts that a search returns."""
        asked = self.questions[question]
        found = await self.storage.search(Owners(owner), "", asked.tolist(), most, None)
        assert {fact.principal for fact in found} == {owner}
        similarities = self.vectors[owner] @ asked
        least = np.partition(similarities, -most)[-most] - ROUNDING
        return sum(similarities[int(fact.text)] >= least for fact in found) / most


@pytest.fixture
def backend() -> str:
    return "postgres"


def unit(vectors: npt.NDArray[np.floating]) -> Vectors:
    """As they are stored: of length one, in half precision."""
    unit_length = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return unit_length.astype(np.float16).astype(np.float32)


def about_topics(random: np.random.Generator, topics: Vectors, count: int) -> Vectors:
    mixed = topics[random.integers(TOPICS, size=(count, 2))].sum(axis=1)
    return unit(mixed + random.normal(scale=0.1, size=mixed.shape))


def interleaved(random: np.random.Generator, vectors: dict[str, Vectors]) -> Iterator[Stored]:
    """All facts in a random order, as many owners would have told them."""
    places = [(owner, at) for owner, own in vectors.items() for at in range(len(own))]
    for place in random.permutation(len(places)):
        owner, at = places[place]
        yield Stored(str(at), vectors[owner][at], owner, session=f"s-{at // 50}")


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_search_misses_nothing_that_comparing_every_fact_finds(
    make_storage: StorageFactory, empty_dsn: str, postgres: EmbeddedPostgres
):
    random = np.random.default_rng(4)
    topics = unit(random.normal(size=(TOPICS, DIMS)))
    sizes = {owner: int(random.integers(200, 501)) for owner in SMALL} | LARGE
    vectors = {owner: about_topics(random, topics, size) for owner, size in sizes.items()}
    questions = about_topics(random, topics, QUESTIONS)
    assert sum(sizes.values()) > 100_000

    storage = make_storage(to=empty_dsn, dims=DIMS, long_term=LongTerm(ranking=ONLY_MEANING))
    assert isinstance(storage, PostgresStorage)
    await storage.open()
    try:
        await store(postgres.dsn(database_of(empty_dsn)), interleaved(random, vectors))
        assert await storage.index_large_owners() == len(LARGE)
        people = Population(storage, vectors, questions)
        for most in (10, 100):
            for number, owner in enumerate(SMALL):
                assert await people.recall(owner, number % QUESTIONS, most) == 1.0
        for owner in LARGE:
            for most in (1, 10, 30, 100):
                found = [await people.recall(owner, at, most) for at in range(QUESTIONS)]
                assert np.mean(found) >= 0.99, (owner, most)
    finally:
        await storage.close()


def database_of(dsn: str) -> str:
    return dsn.rpartition("/")[2].partition("?")[0]
