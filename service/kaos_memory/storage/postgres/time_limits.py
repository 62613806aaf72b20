"""How long statements may run, in seconds, by what their transaction is for.

The server itself enforces it: a request that gave up must not leave a statement behind.
"""

import asyncpg

READ = 3.5
CHANGE = 8.5
"""Both a little longer than the requests wait."""
WORK = 20.0
"""For what workers read and change."""
LONG = 600.0
"""For what goes over a whole store: erasures, dry runs of them, retention."""
GRACE = 1.0
"""How much longer than one statement may run a transaction waits for a server that hangs."""

CHECK_CLIENT = "set_config('client_connection_check_interval', '1000', true)"
"""Has the server look each second (here in ms) whether its client is still there, and stop if not:
a client that hangs up cannot cancel what runs."""

_ANSWER = 5.0


async def can_check_client(pool: asyncpg.Pool) -> bool:
    """Whether the server knows how: PostgreSQL 14 and later, on Linux and some other systems."""
    try:
        await pool.execute(f"SELECT {CHECK_CLIENT}", timeout=_ANSWER)
    except (asyncpg.UndefinedObjectError, asyncpg.InvalidParameterValueError):
        return False
    return True
