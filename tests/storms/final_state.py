"""What must hold of a store's rows once all work is done. Read past everything that guards them."""

import re
from collections.abc import Iterable, Sequence
from itertools import pairwise

from kaos_memory.tiers.memory import Owner

from ..service.storage.driving import account, fetch

_NAME = re.compile(r"\bt\d{5}t\b")
_OF_OWNER = "principal = $1 AND agent = $2 AND session = $3"


async def names_anywhere(dsn: str) -> set[str]:
    """The names of all turns of which any table has a trace."""
    tables = await fetch(
        dsn,
        "SELECT format('%I.%I', schemaname, tablename) AS name FROM pg_tables "
        "WHERE schemaname NOT IN ('pg_catalog', 'information_schema')",
    )
    found: set[str] = set()
    for table in tables:
        rows = await fetch(dsn, f"SELECT to_jsonb(t)::text AS row FROM {table['name']} t")
        found.update(name for row in rows for name in _NAME.findall(row["row"]))
    return found


async def owners(dsn: str) -> set[Owner]:
    """Whose sessions there are."""
    rows = await fetch(dsn, "SELECT principal, agent, session FROM sessions")
    return {Owner(*row) for row in rows}


async def check_conversation(dsn: str, owner: Owner) -> list[str]:
    """Check marks, digests, facts and rows of one session. Returns its turns' names, in order."""
    counted = await account(dsn, owner)
    counted.check()
    assert counted.extracted == list(range(1, counted.last + 1))
    named = (owner.principal, owner.agent, owner.session)
    [session] = await fetch(dsn, f"SELECT * FROM sessions WHERE {_OF_OWNER}", *named)
    digests = await fetch(
        dsn,
        "SELECT version, first_position, last_position FROM digests "
        "WHERE session_ref = $1 ORDER BY version",
        session["id"],
    )
    assert [row["version"] for row in digests] == list(range(1, session["digest_version"] + 1))
    _cover((row[1:] for row in digests), session["folded_through"])
    facts = await fetch(
        dsn,
        "SELECT first_position, last_position, text, created_at, updated_at FROM facts "
        f"WHERE {_OF_OWNER} ORDER BY first_position, created_at",
        *named,
    )
    _cover(sorted({(row[0], row[1]) for row in facts}), session["last_position"])
    # What is extracted a second time becomes no second row, but is noted as said again.
    assert [row["text"] for row in facts if row["created_at"] != row["updated_at"]] == []
    told = [name for row in facts for name in _NAME.findall(row["text"])]
    assert len(told) == len(set(told)) == session["last_position"]
    window = await fetch(
        dsn, "SELECT content FROM turns WHERE session_ref = $1 ORDER BY position", session["id"]
    )
    assert told[session["folded_through"] :] == _names(row["content"] for row in window)
    return told


def _names(texts: Iterable[str]) -> Sequence[str]:
    return [name for text in texts for name in _NAME.findall(text)]


def _cover(ranges: Iterable[Sequence[int]], through: int) -> None:
    """Check that ranges of positions follow each other from 1 on, without gap or overlap."""
    edges = [(0, 0), *((first, last) for first, last in ranges)]
    assert all(first == before + 1 for (_, before), (first, _) in pairwise(edges)), edges
    assert edges[-1][1] == through
