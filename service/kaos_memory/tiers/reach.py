"""What an operation covers, once it is decided who may do it."""

from dataclasses import dataclass

from kaos_memory.contract import ScopeLevel


@dataclass(frozen=True)
class Owners:
    """A set of owners. None means any."""

    principal: str | None = None
    agent: str | None = None
    session: str | None = None


@dataclass(frozen=True)
class Reach:
    """The owners that a read or an erasure covers.

    `owners` bounds facts, and what an erasure deletes in every tier. `conversations` bounds the
    window and the digest; it is None where no session was named, because conversations are
    never merged across sessions.
    """

    level: ScopeLevel
    owners: Owners
    conversations: Owners | None
