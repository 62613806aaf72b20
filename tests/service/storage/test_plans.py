"""Every statement on a request's or a worker's way reads by index, under row-level security.

The planner takes a sequential scan for small tables whatever there is, so scans and sorts are
switched off where an index must be able to serve: what it cannot serve still shows them.
"""

import re
from datetime import timedelta
from uuid import uuid4

import pytest

from kaos_memory.settings import LongTerm
from kaos_memory.storage.postgres import conversations, facts, new_facts, search, work
from kaos_memory.storage.postgres.database import Role, where
from kaos_memory.storage.postgres.erasures import Covered, Selection
from kaos_memory.storage.postgres.storage import PostgresStorage
from kaos_memory.storage.protocol import WorkKind
from kaos_memory.tiers.reach import Owners

from .driving import embedding, fetch

ONE = Owners("user-7", "agent", "session")
OF_AGENT = Owners("user-7", "agent-1")
OF_USER = Owners("user-7")
QUESTION = embedding(1)


@pytest.fixture
def backend() -> str:
    return "postgres"


async def plan(
    storage: PostgresStorage, role: Role, owners: Owners, query: str, *arguments: object
) -> str:
    """The plan of a statement as it really runs: as that role, for those owners."""
    async with storage._db.change(owners.principal or "", owners.agent or "", role) as connection:
        for method in ("seqscan", "bitmapscan", "sort"):
            await connection.execute(f"SET LOCAL enable_{method} = off")
        rows = await connection.fetch(f"EXPLAIN (COSTS OFF) {query}", *arguments)
    return "\n".join(row[0] for row in rows)


async def test_comparing_all_facts_reads_those_of_one_owner_in_one_partition(
    crowded: PostgresStorage,
):
    query, arguments = search.bound(search._COMPARE_ALL, OF_AGENT, QUESTION)
    found = await plan(crowded, Role.REQUEST, OF_AGENT, query, 1_000, *arguments)
    assert "Seq Scan" not in found, found
    assert "Append" not in found, found
    bounds = [line for line in found.splitlines() if "Index Cond" in line]
    assert len(bounds) == 2, found  # to count them, and to read them
    assert all("principal = 'user-7'" in bound for bound in bounds), found
    assert all("agent = 'agent-1'" in bound for bound in bounds), found


async def test_above_the_limit_only_as_many_as_are_compared_are_read(crowded: PostgresStorage):
    crowded._long_term = LongTerm(exact_search_limit=200)
    await crowded.index_large_owners()
    query, arguments = search.bound(search._COMPARE_PART, OF_USER, QUESTION)
    found = await plan(crowded, Role.REQUEST, OF_USER, query, 40, *arguments)
    scans = re.findall(r"Index Scan(?: Backward)? using (\S+) on (\S+)", found)
    in_order = ["embedding", "created_at", "created_at", "created_at", "pkey"]
    for (index, _), ordered_by in zip(scans, in_order, strict=True):
        assert ordered_by in index, found
    assert len({partition for _, partition in scans}) == 1, found
    assert "Sort" not in found, found
    assert "Seq Scan" not in found, found


async def test_pages_come_in_the_order_of_their_index(crowded: PostgresStorage):
    condition, arguments = where(Owners("user-7"), "f", first=5)
    query = facts._PAGE.replace("{condition}", condition)
    found = await plan(
        crowded, Role.REQUEST, Owners("user-7"), query, *facts._BEFORE_ALL, 11, 4_096, *arguments
    )
    assert "principal_created_at_id" in found, found
    assert "Sort" not in found, found


async def test_neighbours_are_searched_among_the_owners_rows(crowded: PostgresStorage):
    arguments = (QUESTION, "user-7", "agent-1", "session-7", 10)
    found = await plan(crowded, Role.WORKER, OF_AGENT, facts._NEIGHBOURS, *arguments)
    assert "Seq Scan" not in found, found
    assert "Append" not in found, found


async def test_a_conversation_is_read_by_keys_alone(crowded: PostgresStorage):
    condition, arguments = where(ONE, "s", first=3)
    query = conversations._CONVERSATIONS.replace("{condition}", condition)
    found = await plan(crowded, Role.REQUEST, ONE, query, 2_000, 4_096, *arguments)
    assert "Seq Scan" not in found, found
    assert "using turns_pkey" in found, found
    assert "using digests_pkey" in found, found
    [bounds] = [line for line in found.splitlines() if "Index Cond" in line and "session =" in line]
    assert "principal = 'user-7'" in bounds, found


@pytest.mark.parametrize(
    ("role", "query", "arguments"),
    [
        (Role.REQUEST, conversations._WINDOW_TOKENS, (7, 3)),
        (Role.REQUEST, conversations.DROP_GONE, (7, 3)),
        (Role.REQUEST, conversations._COMPACT, (7, 1, 1, 1, 10, 10)),
        (Role.REQUEST, conversations._CLOSE, (7,)),
        (Role.WORKER, work._RENEW, (7, "fold", uuid4(), timedelta(seconds=1))),
        (Role.WORKER, work._PENDING, (7, 1, 9, 8_000)),
        (Role.WORKER, work._DIGEST, (7, 1)),
        (Role.WORKER, work._HELD, (7, "fold", uuid4())),
        (Role.WORKER, work._DONE, (7, "fold", uuid4())),
        (Role.WORKER, work._EPOCHS, ([b"a", b"b"],)),
        (Role.WORKER, new_facts._SAID_AGAIN, ("user-7", "agent", "session", ["a", "b"])),
    ],
)
async def test_writes_and_commits_touch_their_session_by_keys_alone(
    crowded: PostgresStorage, role: Role, query: str, arguments: tuple[object, ...]
):
    found = await plan(crowded, role, ONE, query, *arguments)
    assert "Seq Scan" not in found, found


async def test_due_work_is_found_in_the_order_of_its_index(crowded: PostgresStorage):
    arguments = (uuid4(), timedelta(seconds=1), "user-7")
    for query in (work._CLAIM, *work._CLAIM_KIND.values()):
        found = await plan(crowded, Role.WORKER, ONE, query, *arguments)
        assert "work_due" in found, found
        assert "Sort" not in found, found


async def test_one_kind_is_claimed_past_all_that_is_due_of_the_other(
    crowded: PostgresStorage, admin_dsn: str
):
    await fetch(admin_dsn, "DELETE FROM work")
    await fetch(
        admin_dsn,
        "INSERT INTO work (session_ref, kind, principal, agent) "
        "SELECT id, 'extract', principal, agent FROM sessions",
    )
    await fetch(admin_dsn, "ANALYZE work")
    arguments = (uuid4(), timedelta(seconds=1), "")
    query = work._CLAIM_KIND[WorkKind.FOLD]
    found = await plan(crowded, Role.WORKER, ONE, query, *arguments)
    assert "work_due_fold" in found, found


async def test_sessions_that_may_be_idle_are_found_in_the_order_of_their_index(
    crowded: PostgresStorage,
):
    found = await plan(crowded, Role.WORKER, ONE, work._STOP_WAITING)
    assert "work_waiting" in found, found
    assert "Sort" not in found, found


@pytest.mark.parametrize(
    "owners",
    [
        ONE,
        Owners("user-7", "agent"),
        Owners("user-7"),
        Owners(None, "agent"),
        Owners(None, None, "session"),
    ],
)
async def test_an_erasure_finds_its_rows_by_index(crowded: PostgresStorage, owners: Owners):
    covered = Covered(Selection(*where(owners, "s")), Selection(*where(owners, "f")))
    for rows, arguments in covered.rows().values():
        query = f"SELECT count(*) FROM {rows}"
        found = await plan(crowded, Role.REQUEST, owners, query, *arguments)
        assert "Seq Scan" not in found, found
