"""What the service asks of models. Implementations are beside this file."""

from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

from kaos_memory.tiers.memory import Digest, NewFact, Owner, Turn


class ModelError(Exception):
    """A model gave no usable answer. The message has a reason and no content of any memory.

    `retry_after` is the wait in seconds that the endpoint asked for, if it did.
    """

    def __init__(self, reason: str, *, retry_after: float | None = None) -> None:
        self.retry_after = retry_after
        super().__init__(reason)


class ModelUnavailable(ModelError):
    """The endpoint does not work now, whatever it is asked: away, overloaded, or refusing us.

    Not the work's fault, so it does not count towards the retries after which work is dead.
    """


@dataclass(frozen=True)
class Neighbour:
    """A stored fact near a new one: extraction uses it to leave out what is known."""

    id: str
    text: str
    hash: str
    score: float


NeighbourSearch = Callable[[Sequence[float], int], Awaitable[Sequence[Neighbour]]]
"""(embedding, limit) -> the nearest facts of the owner whose turns are being read."""


class Embedder(Protocol):
    """Turns texts into vectors of the store's dimensions."""

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """One vector for each text, in order.

        Raises:
            ModelError: the endpoint failed, or answered with other counts or dimensions.
        """
        ...


class Reranker(Protocol):
    """Orders documents by their relevance to a query."""

    async def rerank(self, query: str, documents: Sequence[str]) -> list[int]:
        """The documents' indices, the most relevant first: each of them exactly once.

        Raises:
            ModelError: the endpoint failed, or answered with something else.
        """
        ...


class Summariser(Protocol):
    """Folds turns into a digest."""

    async def fold(self, digest: Digest, turns: Sequence[Turn]) -> str:
        """The text of the next digest.

        Raises:
            ModelError: no usable text came back.
        """
        ...


@dataclass(frozen=True)
class Extraction:
    """The facts that turns hold."""

    facts: Sequence[NewFact]
    """New ones, embedded; none at all is a valid answer."""
    repeated: Collection[str] = ()
    """Hashes of stored facts that were said again."""


class FactExtractor(Protocol):
    """Reads turns and says which facts they hold."""

    async def extract(
        self, owner: Owner, turns: Sequence[Turn], neighbours: NeighbourSearch
    ) -> Extraction:
        """The facts of turns.

        Raises:
            ModelError: the answer was missing, malformed or incomplete, or embedding failed.
        """
        ...
