"""Facts: exact search over an owner, pages of all, and indexes that serve both under RLS."""

import base64
import random

import asyncpg
import pytest

from kaos_memory.storage.local import facts as local
from kaos_memory.storage.postgres import facts as sql
from kaos_memory.storage.postgres.storage import PostgresStorage
from kaos_memory.storage.protocol import InvalidCursor, Storage, WorkKind
from kaos_memory.tiers.memory import NewFact, NewTurn, Owner
from kaos_memory.tiers.reach import Owners

from .driving import (
    ALICE,
    BOB,
    LEASE,
    embedding,
    new_fact,
)

ANYONE = Owners()


def forged(time: str) -> str:
    """A cursor that says a time which no clock shows."""
    text = f"{time} 00000000-0000-0000-0000-000000000000"
    return base64.urlsafe_b64encode(text.encode()).decode()


async def remember(storage: Storage, owner: Owner, *facts: NewFact) -> None:
    """Store facts the only way there is: as the extraction of overflowing turns."""
    await storage.append(owner, [NewTurn("user", "padding", 60) for _ in range(3)])
    while (lease := await storage.claim(LEASE)) is not None:
        batch = await storage.load(lease)
        if batch is None:
            continue
        if lease.kind is WorkKind.EXTRACT:
            await storage.commit_extraction(batch, facts)
        else:
            await storage.commit_fold(batch, "digest", 1)


def near(*, seed: int, text: str) -> NewFact:
    return new_fact(text, embedding(seed))


async def test_facts_come_nearest_first_with_their_similarity(storage: Storage):
    await remember(storage, ALICE, near(seed=1, text="one"), near(seed=2, text="two"))
    found = await storage.search(Owners("alice"), "", embedding(2), 10, None)
    assert [fact.text for fact in found] == ["two", "one"]
    assert found[0].score == pytest.approx(1.0, abs=1e-3)
    assert found[1].score is not None
    assert found[1].score < 0.2


async def test_a_threshold_drops_what_is_less_similar(storage: Storage):
    await remember(storage, ALICE, near(seed=1, text="one"), near(seed=2, text="two"))
    found = await storage.search(Owners("alice"), "", embedding(2), 10, 0.9)
    assert [fact.text for fact in found] == ["two"]


async def test_each_level_finds_what_it_covers_and_no_more(storage: Storage):
    other_agent = Owner("alice", "kaos://agent/ns/other", "s-2")
    other_session = Owner("alice", ALICE.agent, "s-3")
    for owner, text in (
        (ALICE, "session"),
        (other_session, "agent"),
        (other_agent, "user"),
        (BOB, "bob"),
    ):
        await remember(storage, owner, near(seed=1, text=text))

    async def texts(owners: Owners) -> set[str]:
        return {f.text for f in await storage.search(owners, "", embedding(1), 100, None)}

    assert await texts(Owners("alice", ALICE.agent, "s-1")) == {"session"}
    assert await texts(Owners("alice", ALICE.agent)) == {"session", "agent"}
    assert await texts(Owners("alice")) == {"session", "agent", "user"}
    assert await texts(Owners(None, ALICE.agent)) == {"session", "agent", "bob"}
    assert await texts(ANYONE) == {"session", "agent", "user", "bob"}


async def test_neighbours_are_of_the_same_conversation(storage: Storage):
    other_agent = Owner("alice", "kaos://agent/ns/other", "s-1")
    other_session = Owner("alice", ALICE.agent, "s-2")
    for owner, text in (
        (ALICE, "hers"),
        (other_agent, "another agent's"),
        (other_session, "another session's"),
        (BOB, "his"),
    ):
        await remember(storage, owner, near(seed=1, text=text))
    [found] = await storage.neighbours(ALICE, embedding(1), 10)
    assert (found.text, found.score) == ("hers", pytest.approx(1.0, abs=1e-3))


async def test_a_page_of_long_texts_ends_early_and_none_is_missed(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
):
    for module in (sql, local):
        monkeypatch.setattr(module, "MAX_PAGE_BYTES", 1_000)
    texts = [f"{n} {'long ' * (60 * (n % 3))}" for n in range(12)] + ["x" * 5_000]
    await remember(storage, ALICE, *(new_fact(text, embedding(1)) for text in texts))
    seen: list[str] = []
    cursor: str | None = None
    pages = 0
    while pages == 0 or cursor is not None:
        page, cursor = await storage.list_facts(Owners("alice"), 10, cursor)
        assert len(page) == 1 or sum(len(fact.text) for fact in page[:-1]) < 1_000
        seen += [fact.text for fact in page]
        pages += 1
    assert sorted(seen) == sorted(texts)
    assert pages > 2


async def test_identical_texts_of_several_sessions_count_once_in_a_recall(
    storage: Storage,
):
    for session in ("s-1", "s-2", "s-3"):
        await remember(
            storage, Owner("alice", ALICE.agent, session), near(seed=1, text="likes tea")
        )
    await remember(storage, ALICE, near(seed=3, text="likes rain"))
    found = await storage.search(Owners("alice"), "", embedding(1), 2, None)
    assert [fact.text for fact in found] == ["likes tea", "likes rain"]
    newest = await storage.newest_facts(Owners("alice"), 10)
    assert [fact.text for fact in newest] == ["likes rain", "likes tea"]


async def test_pages_hold_every_fact_once_in_a_stable_order(storage: Storage):
    await remember(storage, ALICE, *(new_fact(f"fact {n}", embedding(n)) for n in range(25)))
    await remember(storage, BOB, new_fact("his", embedding(1)))
    seen: list[str] = []
    cursor: str | None = None
    while True:
        page, cursor = await storage.list_facts(Owners("alice"), 10, cursor)
        seen += [fact.text for fact in page]
        if cursor is None:
            break
    assert len(seen) == 25
    assert set(seen) == {f"fact {n}" for n in range(25)}


@pytest.mark.parametrize(
    "cursor",
    [
        *("", "nonsense", "AAAA", "MjAyNiB4", "é", "🙂" * 40),
        *map(forged, ("0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59")),
    ],
)
async def test_a_cursor_of_somebody_elses_making_is_refused(storage: Storage, cursor: str):
    with pytest.raises(InvalidCursor):
        await storage.list_facts(Owners("alice"), 10, cursor)


@pytest.mark.parametrize("backend", ["postgres"], indirect=True)
async def test_search_is_exact_for_every_owner(crowded: PostgresStorage, admin_dsn: str):
    connection = await asyncpg.connect(admin_dsn)
    generator = random.Random(7)
    for user in generator.sample(range(1, 41), 10):
        question = [generator.random() * 8 for _ in range(8)]
        exact = await connection.fetch(
            "SELECT id FROM kaos_memory.facts WHERE principal = $1 "
            "ORDER BY embedding <=> $2::text::halfvec, id LIMIT 10",
            f"user-{user}",
            sql.vector(question),
        )
        found = await crowded.search(Owners(f"user-{user}"), "", question, 10, None)
        assert [fact.id for fact in found] == [row["id"] for row in exact]
    await connection.close()
