"""Whom a receipt is about: names that hash to what it says, among those in the database."""

from collections.abc import Mapping
from dataclasses import replace

from kaos_memory.contract import Erasure
from kaos_memory.storage.erasure_key import ErasureKey
from kaos_memory.storage.postgres.database import Connection, where
from kaos_memory.tiers.reach import Owners

_NAMES = """
    SELECT {column} FROM sessions s WHERE {of_sessions}
    UNION SELECT {column} FROM facts f WHERE {of_facts}
"""
_PREFETCHED = 10_000
"""Names that are held in memory at once."""


async def recorded_owners(
    connection: Connection, key: ErasureKey, receipt: Erasure
) -> Owners | None:
    """The owners that a receipt names by hashes; None where the database has none of them."""
    owners = Owners()
    hashes: Mapping[str, str | None] = {
        "principal": receipt.principal_hash,
        "agent": receipt.agent_hash,
        "session": receipt.session_hash,
    }
    for column, wanted in hashes.items():
        if wanted is not None:
            name = await _name(connection, key, owners, column, wanted)
            if name is None:
                return None
            owners = replace(owners, **{column: name})
    return owners


async def _name(
    connection: Connection, key: ErasureKey, owners: Owners, column: str, wanted: str
) -> str | None:
    of_sessions, arguments = where(owners, "s")
    of_facts, _ = where(owners, "f")
    query = _NAMES.format(column=column, of_sessions=of_sessions, of_facts=of_facts)
    async for [name] in connection.cursor(query, *arguments, prefetch=_PREFETCHED):
        if key.subject(column, name).hex() == wanted:
            return name
    return None
