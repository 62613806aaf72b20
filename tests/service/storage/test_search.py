"""Search: all of an owner's facts up to a limit, and a part of them above it."""

from collections.abc import AsyncIterator, Sequence

import pytest

from kaos_memory.settings import LongTerm
from kaos_memory.storage.protocol import Storage
from kaos_memory.tiers.memory import Fact
from kaos_memory.tiers.reach import Owners

from ..conftest import StorageFactory, Where
from .stored_facts import Stored, store

ALICE = Owners("alice")
NORTH, EAST, BETWEEN = [1.0] + [0.0] * 7, [0.0, 1.0] + [0.0] * 6, [0.6, 0.8] + [0.0] * 6


@pytest.fixture
async def small(make_storage: StorageFactory) -> AsyncIterator[Storage]:
    """A store that compares all facts of an owner up to 20 of them."""
    storage = make_storage(long_term=LongTerm(exact_search_limit=20))
    await storage.open()
    yield storage
    await storage.close()


def texts(facts: Sequence[Fact]) -> list[str]:
    return [fact.text for fact in facts]


async def test_words_and_meaning_decide_together(small: Storage, where: Where):
    said = [
        Stored("I adopted a puppy", NORTH),
        Stored("Our meetings moved", NORTH),
        Stored("The dentist called", EAST),
    ]
    await store(where, said)
    found = await small.search(ALICE, "Which dentist?", NORTH, 10, None)
    assert texts(found)[0] == "The dentist called"
    assert [fact.score for fact in found] == pytest.approx([0.0, 1.0, 1.0])
    assert texts(await small.search(ALICE, "zebra", EAST, 1, None)) == ["The dentist called"]
    assert (await small.search(ALICE, "zebra", BETWEEN, 1, None))[0].score == pytest.approx(
        0.8, abs=1e-3
    )


async def test_without_an_embedding_words_decide_and_no_fact_has_a_score(
    small: Storage, where: Where
):
    await store(where, [Stored("tea", NORTH), Stored("milk", EAST)])
    found = await small.search(ALICE, "milk", None, 10, 0.9)
    assert texts(found) == ["milk", "tea"]
    assert {fact.score for fact in found} == {None}


async def test_facts_below_the_threshold_are_left_out(small: Storage, where: Where):
    await store(where, [Stored("tea", NORTH), Stored("milk", EAST), Stored("oil", BETWEEN)])
    assert texts(await small.search(ALICE, "tea", EAST, 10, 0.7)) == ["milk", "oil"]
    assert await small.search(ALICE, "tea", [-1.0] + [0.0] * 7, 10, 0.1) == []


async def test_a_turn_is_found_by_the_words_of_the_turn_before_it(small: Storage, where: Where):
    said = [
        Stored("Seventeen, I think", NORTH, session="s-2", position=2, speaker="Ann"),
        Stored("How old was the bridge", NORTH, position=1, speaker="Bob"),
        Stored("Sixty of these, I think", NORTH, position=2, speaker="Ann"),
    ]
    await store(where, said)
    found = await small.search(ALICE, "age of the bridge", NORTH, 10, None)
    assert texts(found) == [said[1].text, said[2].text, said[0].text]


async def test_a_search_sees_the_facts_of_its_owners_only(small: Storage, where: Where):
    said = [
        Stored("tea one", NORTH),
        Stored("tea two", NORTH, agent="other"),
        Stored("tea three", NORTH, session="s-2"),
        Stored("tea four", NORTH, principal="bob"),
    ]
    await store(where, said)

    async def found(owners: Owners) -> set[str]:
        return set(texts(await small.search(owners, "tea", NORTH, 10, None)))

    assert await found(ALICE) == {"tea one", "tea two", "tea three"}
    assert await found(Owners("alice", "helper")) == {"tea one", "tea three"}
    assert await found(Owners("alice", "helper", "s-2")) == {"tea three"}
    assert await found(Owners(agent="helper")) == {"tea one", "tea three", "tea four"}
    assert await found(Owners()) == {fact.text for fact in said}
    assert await found(Owners("carol")) == set()


async def test_identical_texts_count_once(small: Storage, where: Where):
    await store(where, [Stored("tea", NORTH, session=f"s-{at}") for at in range(3)])
    assert texts(await small.search(ALICE, "tea", NORTH, 10, None)) == ["tea"]


def many(count: int) -> list[Stored]:
    """Facts that point north, but for one that points east and is neither old nor new."""
    facts = [Stored(f"walk number {at}", NORTH) for at in range(count)]
    facts[count // 2] = Stored("a rare orchid", EAST)
    return facts


async def test_above_the_limit_the_nearest_are_found_and_the_newest_words(
    small: Storage, where: Where
):
    await store(where, many(1_300))
    assert texts(await small.search(ALICE, "zebra", EAST, 1, None)) == ["a rare orchid"]
    assert texts(await small.search(ALICE, "1299", NORTH, 1, None)) == ["walk number 1299"]


async def test_above_the_limit_what_was_said_beside_the_nearest_is_compared_too(
    small: Storage, where: Where
):
    facts = many(1_300)
    facts[652] = Stored("seen near Oslo", NORTH)
    await store(where, facts)
    found = await small.search(ALICE, "Oslo", EAST, 2, None)
    assert texts(found) == ["a rare orchid", "seen near Oslo"]


async def test_above_the_limit_without_an_embedding_the_newest_are_compared(
    small: Storage, where: Where
):
    await store(where, many(60))
    found = await small.search(ALICE, "orchid 45", None, 100, None)
    assert texts(found)[0] == "walk number 45"
    assert set(texts(found)) == {f"walk number {at}" for at in range(40, 60)}


async def test_above_the_limit_one_text_said_often_leaves_room_for_others(
    small: Storage, where: Where
):
    facts = many(1_300)
    facts[100:800] = [Stored("I like tea", EAST, session=f"s-{at}") for at in range(700)]
    facts[800:803] = [Stored(f"tea variety {at}", BETWEEN) for at in range(3)]
    await store(where, facts)
    expected = ["I like tea", *(f"tea variety {at}" for at in range(3))]
    assert sorted(texts(await small.search(ALICE, "which tea", EAST, 4, 0.5))) == expected
    await small.index_large_owners()
    found = texts(await small.search(ALICE, "which tea", EAST, 4, 0.5))
    assert sorted(found) == expected


@pytest.mark.parametrize("query", ["tea", None])
async def test_a_recalls_facts_end_where_their_texts_grow_over_a_bound(
    small: Storage, where: Where, monkeypatch: pytest.MonkeyPatch, query: str | None
):
    for module in (
        "kaos_memory.storage.postgres.search",
        "kaos_memory.storage.postgres.facts",
        "kaos_memory.storage.local.facts",
    ):
        monkeypatch.setattr(f"{module}.MAX_RECALL_BYTES", 100)
    said = [Stored(f"{at} {'ä' * 30}", NORTH) for at in range(4)]  # 62 bytes each
    await store(where, [*said, Stored("z" * 500, NORTH, principal="bob")])

    async def found(owners: Owners) -> list[str]:
        if query is None:
            return texts(await small.newest_facts(owners, 10))
        return texts(await small.search(owners, query, NORTH, 10, None))

    first = said[:2] if query else said[:1:-1]
    assert await found(ALICE) == [fact.text for fact in first]
    assert await found(Owners("bob")) == ["z" * 500]


async def test_above_the_limit_the_last_said_of_several_principals_are_compared(
    small: Storage, where: Where
):
    old = [Stored(f"walk number {at}", NORTH, f"user-{at % 3}") for at in range(40)]
    new = [Stored(f"swim number {at}", NORTH, f"user-{at % 3}") for at in range(20)]
    await store(where, old)
    await store(where, new)
    found = texts(await small.search(Owners(agent="helper"), "swim 7", NORTH, 100, None))
    assert found[0] == "swim number 7"
    assert {fact.text for fact in new} <= set(found)
