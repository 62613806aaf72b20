"""The words of memory: owners, turns, digests, facts. Plain values, no I/O."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

NO_PRINCIPAL = ""
"""The principal of an agent that acts for nobody. No caller can name it: empty ids are refused."""


@dataclass(frozen=True)
class Owner:
    """Whose conversation a write goes to: verified user, verified agent, session."""

    principal: str
    agent: str
    session: str


@dataclass(frozen=True)
class NewTurn:
    """A turn on its way in. `tokens` is counted once, here."""

    role: str
    content: str
    tokens: int
    infer: bool = True
    """False: the text itself becomes a fact; no model reads it."""
    said_at: datetime | None = None
    """When it was said, where that is not now."""


@dataclass(frozen=True)
class Turn:
    """A stored turn. Positions count from 1 within a session, without gaps."""

    position: int
    role: str
    content: str
    tokens: int
    infer: bool
    created_at: datetime
    """When it was stored; the order of turns of several sessions."""
    said_at: datetime
    """When it was said: what prompts and facts are dated by."""


@dataclass(frozen=True)
class Digest:
    """One version of a session's rolling summary. Version 0 is the empty one before the first."""

    version: int
    summary: str


@dataclass(frozen=True)
class Conversation:
    """What the conversational tiers hold of one session: its digest, and its latest turns."""

    principal: str
    agent: str
    session: str
    digest: str
    turns: Sequence[Turn]
    """Oldest first: turns that wait for their digest, then the window."""


@dataclass(frozen=True)
class NewFact:
    """A fact on its way in, with its embedding and the turns that it comes from."""

    text: str
    embedding: Sequence[float]
    first_position: int
    last_position: int
    """The same as the first where the fact is that turn itself."""
    said_at: datetime
    speaker: str = ""
    """Who said it, where the fact is a turn itself."""

    @property
    def hash(self) -> str:
        """The digest by which identical texts of one owner are the same fact."""
        return fact_hash(self.text)


@dataclass(frozen=True)
class Fact:
    """A stored fact. `score` is its cosine similarity to the query, where there was one."""

    id: UUID
    principal: str
    agent: str
    session: str
    text: str
    hash: str
    created_at: datetime
    updated_at: datetime
    score: float | None = None


def fact_hash(text: str) -> str:
    """The digest by which identical fact texts are recognised (a checksum, not a secret)."""
    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()
