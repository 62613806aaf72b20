"""Records of writes that may be sent again, in the transaction of the write itself."""

from dataclasses import dataclass
from datetime import timedelta

from kaos_memory.storage.postgres.database import Connection
from kaos_memory.storage.protocol import Appended, IdempotencyConflict

# Of the same key at the same moment one goes on; the others wait until it commits or rolls back.
# A record over its age is replaced. One that stays is locked all the same: nobody deletes it
# before it is read.
_FIRST_USE = """
    INSERT INTO idempotency AS i (key, body) VALUES ($1, $2)
    ON CONFLICT (key) DO UPDATE SET body = $2, scheduled = false, stored_at = now()
        WHERE i.stored_at <= now() - $3::interval
    RETURNING true
"""
_FIRST_ANSWER = "SELECT body, scheduled FROM idempotency WHERE key = $1"
_SCHEDULED = "UPDATE idempotency SET scheduled = true WHERE key = $1"


@dataclass(frozen=True)
class Use:
    """The use of a key for some content, both as keyed hashes."""

    key: bytes
    content: bytes


async def first_answer(connection: Connection, use: Use, valid_for: timedelta) -> Appended | None:
    """What the first write with this key was answered; None where this is the first.

    Raises:
        IdempotencyConflict: the first was another write.
    """
    if await connection.fetchval(_FIRST_USE, use.key, use.content, valid_for):
        return None
    first = await connection.fetchrow(_FIRST_ANSWER, use.key)
    assert first is not None  # noqa: S101 - locked since the statement before
    if first["body"] != use.content:
        raise IdempotencyConflict
    return Appended(first["scheduled"], replayed=True)


async def note_scheduled(connection: Connection, use: Use) -> None:
    """Have the answer to this write say that work became due with it."""
    await connection.execute(_SCHEDULED, use.key)
