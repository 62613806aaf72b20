"""Work that sessions lack which were written while no facts were extracted."""

from datetime import timedelta

from kaos_memory.storage.postgres.database import STORE, Database, Role
from kaos_memory.tiers.reach import Owners

_LACKING = """
    FROM sessions s WHERE extracted_through < last_position AND NOT EXISTS (
        SELECT 1 FROM work w WHERE w.session_ref = s.id AND w.kind = 'extract'
    )
"""
_ANY = f"SELECT EXISTS (SELECT 1 {_LACKING})"
_AWAIT = f"""
    INSERT INTO work (session_ref, kind, principal, agent, waiting, run_after)
    SELECT id, 'extract', principal, agent, true, last_turn_at + $1 {_LACKING} LIMIT $2
"""
_AT_ONCE = 10_000
"""Sessions that writes wait for."""


async def await_extraction(database: Database, idle_after: timedelta) -> None:
    """Let every session with turns that were never extracted wait until it is idle.

    Ordinarily none lacks its work, and this is one scan of the sessions, beside all writes.
    """
    async with database.everyone(Role.WORKER) as connection:
        lacking = await connection.fetchval(_ANY)
    while lacking:
        # Nothing else runs meanwhile: an erasure would miss work that comes after its scan.
        async with database.erasure(Owners(), STORE) as connection:
            await connection.execute(_AWAIT, idle_after, _AT_ONCE)
            lacking = await connection.fetchval(_ANY)
