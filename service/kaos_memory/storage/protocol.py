"""What a storage does. PostgreSQL is one; the rules that both must keep are in `tiers`."""

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Protocol
from uuid import UUID

from kaos_memory.contract import Erasure
from kaos_memory.engine.protocols import Neighbour
from kaos_memory.settings import Retention
from kaos_memory.tiers.memory import Conversation, Digest, Fact, NewFact, NewTurn, Owner, Turn
from kaos_memory.tiers.provenance import Provenance
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


class IdempotencyConflict(Exception):
    """The key of a write was used before, for another one."""


class UnusableReceipt(Exception):
    """The receipt cannot be replayed here. The message says why."""


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


class WorkState(StrEnum):
    """What a piece of work waits for."""

    WAITING = "waiting"
    """For its session to become idle."""
    DUE = "due"
    LEASED = "leased"
    RETRYING = "retrying"
    """For the end of its back-off."""
    DEAD = "dead"
    """For somebody to retry or to drop it."""


@dataclass(frozen=True)
class WorkCount:
    """How much work of one kind is in one state."""

    kind: WorkKind
    state: WorkState
    count: int
    oldest_seconds: float
    """How long the oldest has been due or dead; 0 for what is due later."""


@dataclass(frozen=True)
class WorkItem:
    """A piece of work as operators see it. No content of any turn."""

    session_ref: int
    kind: WorkKind
    state: WorkState
    principal: str
    agent: str
    attempts: int
    failures: int
    last_error: str | None
    run_after: datetime
    """When it is or was due; of dead work, when it died."""

    @property
    def ref(self) -> str:
        """By which commands name it."""
        return f"{self.session_ref}:{self.kind}"


@dataclass(frozen=True)
class Batch:
    """What a lease's model call reads, and the state that its commit must still find."""

    lease: Lease
    owner: Owner
    digest: Digest
    turns: Sequence[Turn]
    epochs: tuple[int, ...]


@dataclass(frozen=True)
class IdempotencyKey:
    """What an agent, acting for a principal, calls one write, so that sending it again is safe."""

    name: str
    """1 to 200 printable ASCII characters."""
    valid_for: timedelta
    """For how long the first answer is given again; after that the key is free."""


@dataclass(frozen=True)
class Appended:
    """What became of a write."""

    scheduled: bool
    """Background work became due with it."""
    replayed: bool = False
    """It was stored before, under the same key; nothing was stored now."""


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

    async def append(
        self, owner: Owner, turns: Sequence[NewTurn], key: IdempotencyKey | None = None
    ) -> Appended:
        """Store turns, compact where due.

        With a key they are stored once: the same write again, on whichever replica and at
        whichever moment, gets the first one's answer; one that was rolled back does not count.
        The key is recorded in the transaction that stores the turns, as keyed hashes
        (`ErasureKey.write`, `ErasureKey.content`) that name nobody. Erasures leave it, so that a
        late retry brings nothing back. A record over its age counts as none.

        Raises:
            IdempotencyConflict: the key was used for another write.
        """
        ...

    async def close_sessions(self, owners: Owners) -> bool:
        """Make extraction due for all turns of these sessions. True where any was left."""
        ...

    async def conversations(self, owners: Owners, budget: int) -> list[Conversation]:
        """The conversations of a session, each with its newest turns within a token budget."""
        ...

    async def search(
        self,
        owners: Owners,
        query: str,
        embedding: Sequence[float] | None,
        most: int,
        threshold: float | None,
    ) -> list[Fact]:
        """The facts that answer a query best, best first; identical texts count once.

        Args:
            owners: Whose facts.
            query: Its words count.
            embedding: Its meaning; None where it is not known: then words alone decide, and no
                fact has a score.
            most: How many.
            threshold: Facts with a smaller cosine similarity are left out, however well their
                words fit.
        """
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

    async def fact(self, owners: Owners, fact_id: UUID) -> tuple[Fact, Provenance] | None:
        """A fact of these owners and where it comes from, or None."""
        ...

    async def erase(self, reach: Reach, *, dry_run: bool, by: str | None = None) -> Erasure:
        """Delete everything that a reach covers, scan again, and write the receipt.

        Args:
            reach: What is erased.
            dry_run: Only count; the result is a plan.
            by: The agent that asks, or None.
        """
        ...

    async def erase_fact(
        self, owners: Owners, fact_id: UUID, *, by: str | None = None
    ) -> Erasure | None:
        """Delete a fact of these owners as `erase` does; None where there is none.

        Facts of the same text go with it, as far as they are of its principal and of these
        owners: recalls show them as one.
        """
        ...

    async def receipt(self, erasure_id: UUID, *, to: str | None = None) -> Erasure | None:
        """A receipt. An agent (`to`) gets those that are about it or that it asked for."""
        ...

    def receipts(self, after: datetime | None = None) -> AsyncIterator[Erasure]:
        """All receipts of erasures after a time, the oldest first."""
        ...

    async def replay(self, receipt: Erasure) -> Erasure:
        """Erase again, in a database that was restored, what a receipt says was erased.

        Whose memory that is, is found by hashing the names in the database. Of it goes what is
        older than the receipt: whole sessions that began before it, with all their facts, and
        facts that were made before it; of the level `fact`, the facts with that hash. The receipt
        is recorded if it is missing. Doing it twice changes nothing.

        Returns:
            The receipt, with the counts and the residue of this replay.

        Raises:
            UnusableReceipt: it is a plan, or was made with the key of another store.
        """
        ...

    async def claim(self, lease_for: timedelta, only: WorkKind | None = None) -> Lease | None:
        """Take one piece of due work, or of one kind of it, in turn over principals, or None."""
        ...

    async def renew(self, lease: Lease, lease_for: timedelta) -> None:
        """Prolong a lease. Raises `LeaseLost` where it is no longer ours."""
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

    async def commit_extraction(
        self, batch: Batch, facts: Sequence[NewFact], repeated: Collection[str] = ()
    ) -> None:
        """Store facts and move the mark. Raises `LeaseLost`.

        A fact that was erased by itself does not come back from turns that are older than that:
        it is left out. Of `repeated`, hashes of stored facts of the session, it is noted that
        they were said again now.
        """
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

    async def spend(self, tokens: int) -> int:
        """Add to the model tokens of the day (UTC), and return the store's sum."""
        ...

    async def work_summary(self) -> list[WorkCount]:
        """How much work there is, by kind and state."""
        ...

    async def work_items(self, states: Collection[WorkState], most: int) -> list[WorkItem]:
        """Work in these states, the longest due first."""
        ...

    async def retry_work(self, session_ref: int, kind: WorkKind) -> bool:
        """Make dead work due again, with all its retries. False where there is no such."""
        ...

    async def drop_work(self, session_ref: int, kind: WorkKind) -> bool:
        """Give up dead work: its turns are passed over. False where there is no such."""
        ...

    async def index_large_owners(self) -> int:
        """Make the indexes that searches over many facts need. Returns how many were missing.

        To be called now and then, by any number of replicas. It takes as long as the building.
        """
        ...

    async def retain(self, retention: Retention, most: int) -> Mapping[str, int]:
        """Delete up to `most` of each kind of record that is over age. Returns how many."""
        ...
