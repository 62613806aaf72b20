"""Who calls. Today only `auth.mode: disabled`; verified tokens will fill the same value."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Caller:
    """The identities that came with a request."""

    actor: str | None = None
    """The agent that acts, or None for a person or an admin."""
