"""Records of writes that may be sent again, in the transaction of the write itself."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

from kaos_memory.storage.erasure_key import ErasureKey
from kaos_memory.storage.local.database import Connection, now, one, span
from kaos_memory.storage.protocol import Appended, IdempotencyConflict, IdempotencyKey
from kaos_memory.tiers.memory import NewTurn, Owner

_FIRST_ANSWER = """
    SELECT body, scheduled FROM idempotency WHERE key = :key AND stored_at > :expired
"""
_RECORD = """
    INSERT OR REPLACE INTO idempotency (key, body, scheduled, stored_at)
    VALUES (:key, :body, :scheduled, :now)
"""


@dataclass(frozen=True)
class Use:
    """The use of a key for some content, both as keyed hashes."""

    named: dict[str, Any]

    @classmethod
    def of(
        cls, hashes: ErasureKey, owner: Owner, turns: Sequence[NewTurn], key: IdempotencyKey
    ) -> Self:
        """A use that begins now."""
        time = now()
        return cls(
            {
                "key": hashes.write(owner, key.name),
                "body": hashes.content(owner, turns),
                "now": time,
                "expired": time - span(key.valid_for),
            }
        )

    def first_answer(self, connection: Connection) -> Appended | None:
        """What the first write with this key was answered; None where this is the first.

        Raises:
            IdempotencyConflict: the first was another write.
        """
        first = one(connection, _FIRST_ANSWER, self.named)
        if first is None:
            return None
        if first["body"] != self.named["body"]:
            raise IdempotencyConflict
        return Appended(bool(first["scheduled"]), replayed=True)

    def record(self, connection: Connection, appended: Appended) -> None:
        """Have this answer given again, instead of one that is over its age."""
        connection.execute(_RECORD, {**self.named, "scheduled": appended.scheduled})
