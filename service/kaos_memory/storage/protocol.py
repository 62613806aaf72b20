"""What a storage does. PostgreSQL is one; the rules that both must keep are in `tiers`."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Protocol
from uuid import UUID

from kaos_memory.contract import Erasure
from kaos_memory.engine.protocols import Neighbour
from kaos_memory.tiers.memory import Conversation, Digest, Fact, NewFact, NewTurn, Owner, Turn
from kaos_memory.tiers.reach import Owners, Reach


class StorageUnavailable(Exception):
    """The storage cannot be reached now; trying again later may work."""


class StorageLost(StorageUnavailable):
    """The storage answers, but what was prepared in it is gone; opening it anew may help."""


class StorageMisconfigured(Exception):
    """The storage is there but not fit for this store. The message has the remedy."""


class LeaseLost(Exception):
    """The work was erased, changed or taken over while a model was asked: nothing is stored."""


class InvalidCursor(Exception):
    """The cursor is not one that a page returned."""


class WorkKind(StrEnum):
    """The kinds of background work on a session."""

    FOLD = "fold"
    EXTRACT = "extract"


@dataclass(frozen=True)
class Lease:
    """Work that this process may do, until the lease runs out."""

    session_ref: int
    kind: WorkKind
    token: UUID
    attempt: int
    """1 for the first."""
    failures: int
    """Earlier attempts that failed through the work itself."""
    principal: str
    agent: str


@dataclass(frozen=True)
class Batch:
    """What a lease's model call reads, and the state that its commit must still find."""

    lease: Lease
    owner: Owner
    digest: Digest
    turns: Sequence[Turn]
    epochs: tuple[int, ...]


class Storage(Protocol):
    """All tiers of one store. Every method may raise `StorageUnavailable`."""

    async def open(self) -> None:
        """Connect, migrate, check. Raises `StorageMisconfigured` where that cannot be mended."""
        ...

    async def close(self) -> None:
        """Let go of all connections."""
        ...

    async def ping(self) -> None:
        """Prove that statements are answered."""
        ...

    async def append(self, owner: Owner, turns: Sequence[NewTurn]) -> bool:
        """Store turns, compact where due. True where background work became due with it."""
        ...

    async def conversations(self, owners: Owners, budget: int) -> list[Conversation]:
        """The conversations of a session, each with its newest turns within a token budget."""
        ...

    async def nearest_facts(
        self, owners: Owners, embedding: Sequence[float], most: int, threshold: float | None
    ) -> list[Fact]:
        """The most similar facts, exactly, nearest first; identical texts count once."""
        ...

    async def newest_facts(self, owners: Owners, most: int) -> list[Fact]:
        """The latest facts, newest first; identical texts count once."""
        ...

    async def list_facts(
        self, owners: Owners, most: int, cursor: str | None
    ) -> tuple[list[Fact], str | None]:
        """A page of all facts in the order they were made, and the next page's cursor.

        Raises:
            InvalidCursor: the cursor is none of ours.
        """
        ...

    async def erase(self, reach: Reach, *, dry_run: bool) -> Erasure:
        """Delete everything that a reach covers, scan again, and write the receipt."""
        ...

    async def claim(self, lease_for: timedelta) -> Lease | None:
        """Take one piece of due work, or None."""
        ...

    async def load(self, lease: Lease) -> Batch | None:
        """What the lease's model call reads; None where nothing is left, and the work is done.

        Raises:
            LeaseLost: the work is no longer ours.
        """
        ...

    async def neighbours(
        self, owner: Owner, embedding: Sequence[float], most: int
    ) -> list[Neighbour]:
        """The facts of an owner's session nearest to an embedding.

        Only its session: a fact that was said in two must outlive the erasure of one.
        """
        ...

    async def commit_fold(self, batch: Batch, summary: str, tokens: int) -> None:
        """Store the next digest version and move the mark. Raises `LeaseLost`."""
        ...

    async def commit_extraction(self, batch: Batch, facts: Sequence[NewFact]) -> None:
        """Store facts and move the mark. Raises `LeaseLost`."""
        ...

    async def postpone(self, lease: Lease, reason: str, wait: timedelta) -> None:
        """Give work back that could not be done through no fault of its own."""
        ...

    async def fail(self, lease: Lease, reason: str, wait: timedelta | None) -> None:
        """Give back work that failed: due after a wait, or without one dead, its turns intact."""
        ...

    async def release(self, lease: Lease) -> None:
        """Give work back untouched, as at shutdown."""
        ...
