"""Indexes of embeddings in PostgreSQL: only where an owner has many facts, and each made once."""

from collections.abc import AsyncIterator

import pytest

from kaos_memory.settings import LongTerm
from kaos_memory.storage.postgres.storage import PostgresStorage

from ..conftest import StorageFactory
from .driving import fetch
from .stored_facts import Stored, store
from .test_search import ALICE, EAST, NORTH, many, texts


@pytest.fixture
def backend() -> str:
    return "postgres"


@pytest.fixture
async def small(make_storage: StorageFactory) -> AsyncIterator[PostgresStorage]:
    """A store that compares all facts of an owner up to 20 of them."""
    storage = make_storage(long_term=LongTerm(exact_search_limit=20))
    assert isinstance(storage, PostgresStorage)
    await storage.open()
    yield storage
    await storage.close()


async def indexes(admin_dsn: str) -> list[str]:
    rows = await fetch(
        admin_dsn,
        "SELECT indexname FROM pg_indexes WHERE indexdef LIKE '%hnsw%' ORDER BY indexname",
    )
    return [row[0] for row in rows]


async def test_a_partition_with_a_large_owner_gets_an_index_once(
    small: PostgresStorage, admin_dsn: str
):
    await store(admin_dsn, [*many(21), Stored("few", NORTH, principal="bob")])
    before = await small.search(ALICE, "zebra", EAST, 30, None)
    assert await small.index_large_owners() == 1
    assert len(await indexes(admin_dsn)) == 1
    assert await small.index_large_owners() == 0
    after = await small.search(ALICE, "zebra", EAST, 30, None)
    assert texts(after)[0] == texts(before)[0] == "a rare orchid"
    assert set(texts(after)) == set(texts(before))


async def test_owners_within_the_limit_get_no_index(small: PostgresStorage, admin_dsn: str):
    said = [
        Stored(f"walk {at}", NORTH, principal=f"user-{owner}")
        for owner in range(40)
        for at in range(20)
    ]
    await store(admin_dsn, said)
    assert await small.index_large_owners() == 0
    assert await indexes(admin_dsn) == []


async def test_an_index_whose_building_was_interrupted_is_made_anew(
    small: PostgresStorage, admin_dsn: str
):
    await store(admin_dsn, many(30))
    await small.index_large_owners()
    await fetch(
        admin_dsn,
        """
        UPDATE pg_index SET indisvalid = false
        WHERE indexrelid = (SELECT oid FROM pg_class WHERE relname LIKE '%\\_embedding')
        """,
    )
    assert await small.index_large_owners() == 1
    assert await small.index_large_owners() == 0
    assert len(await indexes(admin_dsn)) == 1
