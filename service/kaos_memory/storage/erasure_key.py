"""The key under which a store remembers names and contents that it must not keep."""

import hmac
import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC
from hashlib import sha256

from kaos_memory.tiers.memory import NewTurn, Owner
from kaos_memory.tiers.reach import Owners

KEY_BYTES = 32


@dataclass(frozen=True)
class ErasureKey:
    """Keyed hashes of one store: without the key nobody can try out whom they stand for."""

    key: bytes

    @property
    def id(self) -> str:
        """By which a receipt says whose it is: a short digest that tells nothing of the key."""
        return sha256(b"kaos erasure key\0" + self.key).hexdigest()[:16]

    def subject(self, kind: str, name: str) -> bytes:
        """The hash of a name of a kind: a principal, an agent, a session."""
        return self._hash(kind, name)

    def subjects(self, principal: str) -> tuple[bytes, bytes]:
        """All that an erasure of this principal's memory could be about: the store, or it."""
        return self.subject("store", ""), self.subject("principal", principal)

    def names(self, owner: Owner) -> tuple[bytes, bytes, bytes]:
        """The hashes of an owner's principal, agent and session, as receipts have them."""
        return (
            self.subject("principal", owner.principal),
            self.subject("agent", owner.agent),
            self.subject("session", owner.session),
        )

    def erased_subject(self, owners: Owners) -> bytes:
        """What an erasure of these owners' memory is about: a principal, or the whole store."""
        store, principal = self.subjects(owners.principal or "")
        return store if owners.principal is None else principal

    def fact(self, text_hash: str) -> bytes:
        """The hash of a fact, by the checksum of its text."""
        return self._hash("fact", text_hash)

    def write(self, owner: Owner, name: str) -> bytes:
        """The hash of what an agent, acting for a principal, calls one of its writes."""
        return self._hash("write", owner.principal, owner.agent, name)

    def content(self, owner: Owner, turns: Sequence[NewTurn]) -> bytes:
        """The hash of what is written: the session and the turns as they were sent."""
        sent = [
            [
                turn.role,
                turn.content,
                turn.infer,
                turn.said_at and turn.said_at.astimezone(UTC).isoformat(),
            ]
            for turn in turns
        ]
        return self._hash("content", owner.session, json.dumps(sent))

    def _hash(self, *parts: str) -> bytes:
        """No part holds a NUL, so different parts are never the same text."""
        return hmac.digest(self.key, "\0".join(parts).encode(), "sha256")
