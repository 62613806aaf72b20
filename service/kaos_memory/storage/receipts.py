"""What receipts of erasures say, and which of them can be replayed."""

from collections.abc import Mapping

from kaos_memory.contract import Erasure, ErasureLevel
from kaos_memory.storage.erasure_key import ErasureKey
from kaos_memory.storage.protocol import UnusableReceipt
from kaos_memory.tiers.reach import Owners

COUNTED = ("sessions", "turns", "digests", "facts")


def draft(
    key: ErasureKey,
    level: ErasureLevel,
    owners: Owners,
    by: str | None,
    text_hash: str | None = None,
) -> Erasure:
    """A receipt before the erasure: its counts are 0, and it has no id and no time."""
    return _nothing(level).model_copy(
        update={
            "principal_hash": _named(key, "principal", owners.principal),
            "agent_hash": _named(key, "agent", owners.agent),
            "session_hash": _named(key, "session", owners.session),
            "fact_hash": None if text_hash is None else key.fact(text_hash).hex(),
            "erased_by": _named(key, "agent", by),
            "key_id": key.id,
        }
    )


def plan(level: ErasureLevel, found: Mapping[str, int]) -> Erasure:
    """What an erasure would delete."""
    return counted(_nothing(level), found, residue=sum(found.values()))


def counted(receipt: Erasure, deleted: Mapping[str, int], residue: int) -> Erasure:
    """The receipt with the counts of what went, and of what is left."""
    counts = {table: deleted.get(table, 0) for table in COUNTED}
    return receipt.model_copy(update=counts | {"residue": residue})


def check(receipt: Erasure, key: ErasureKey) -> None:
    """Refuse a receipt that cannot be replayed in the store of this key.

    Raises:
        UnusableReceipt: with the reason.
    """
    if receipt.id is None or receipt.erased_at is None or receipt.key_id is None:
        raise UnusableReceipt("it is the plan of an erasure, not its receipt")
    if receipt.key_id != key.id:
        raise UnusableReceipt(
            f"it was made with the key {receipt.key_id} of another store; this one's is {key.id}: "
            "replay it in a copy of the database that made it"
        )
    about = {
        ErasureLevel.SESSION: receipt.session_hash,
        ErasureLevel.AGENT: receipt.agent_hash,
        ErasureLevel.USER: receipt.principal_hash,
        ErasureLevel.FACT: receipt.fact_hash,
    }
    if about.get(receipt.level, "") is None:
        raise UnusableReceipt(f"it lacks the hash that its level {receipt.level} is about")


def _nothing(level: ErasureLevel) -> Erasure:
    return Erasure(level=level, turns=0, digests=0, facts=0, sessions=0, residue=0)


def _named(key: ErasureKey, kind: str, name: str | None) -> str | None:
    return None if name is None else key.subject(kind, name).hex()
