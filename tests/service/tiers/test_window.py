"""Marks and eviction: pure rules, checked over any sequence."""

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from kaos_memory.tiers.memory import Conversation, Turn
from kaos_memory.tiers.window import Compaction, Marks, batch, merged, summary

START = datetime(2026, 1, 1, tzinfo=UTC)
TOKENS = st.lists(st.integers(1, 200), min_size=1, max_size=60)


def turn(position: int, tokens: int = 10, *, infer: bool = True, second: int = 0) -> Turn:
    at = START + timedelta(seconds=second or position)
    return Turn(position, "user", f"turn {position}", tokens, infer, at, at)


def compaction(
    trigger: int = 100, target: int = 50, cap: int = 1_000, *, fold: bool = True
) -> Compaction:
    return Compaction(trigger, target, cap, fold=fold, extract=True)


def test_a_window_at_its_trigger_is_left_alone_and_above_it_is_compacted():
    assert not compaction().due(tokens=100, turns=5)
    assert compaction().due(tokens=101, turns=5)


def test_a_window_above_the_hard_event_cap_is_compacted_whatever_its_tokens():
    assert not compaction(cap=8).due(tokens=8, turns=8)
    assert compaction(cap=8).due(tokens=9, turns=9)
    assert compaction(cap=8).kept([1] * 9) == 4


def test_the_newest_turns_that_fit_the_target_stay():
    assert compaction().kept([20, 20, 10, 1, 60]) == 3


def test_a_last_turn_larger_than_the_budget_stays():
    assert compaction().kept([500, 10]) == 1


@given(TOKENS, st.integers(2, 400), st.data())
def test_what_stays_fits_the_target_but_for_the_last_turn(
    tokens: list[int], trigger: int, data: st.DataObject
):
    target = data.draw(st.integers(1, trigger - 1))
    kept = Compaction(trigger, target, 20, fold=True, extract=True).kept(tokens)
    assert 1 <= kept <= len(tokens)
    assert sum(tokens[:kept]) <= target or kept == 1
    assert kept <= 20


def test_eviction_moves_the_marks_of_tiers_that_are_off_along():
    assert Marks(3, 2, 1).evict(9, compaction()) == Marks(9, 2, 1)
    assert Marks(3, 2, 1).evict(9, compaction(fold=False)) == Marks(9, 9, 1)


def test_a_turn_is_gone_when_it_is_both_folded_and_extracted():
    assert Marks(evicted_through=9, folded_through=7, extracted_through=4).gone_through == 4


def test_a_batch_holds_turns_alike_up_to_its_tokens_and_at_least_one():
    turns = [turn(1, 50), turn(2, 50), turn(3, 50), turn(4, infer=False)]
    assert [t.position for t in batch(turns, 120)] == [1, 2]
    assert [t.position for t in batch(turns, 1)] == [1]
    assert [t.position for t in batch(turns, 1_000)] == [1, 2, 3]


@given(TOKENS, st.integers(1, 300))
def test_batches_cover_every_turn_once_in_order(tokens: list[int], most: int):
    turns = [turn(at, size, infer=size % 3 != 0) for at, size in enumerate(tokens, start=1)]
    left, covered = turns, list[int]()
    while left:
        taken = batch(left, most)
        covered += [t.position for t in taken]
        left = left[len(taken) :]
    assert covered == list(range(1, len(tokens) + 1))


def conversation(agent: str, digest: str, *turns: Turn) -> Conversation:
    return Conversation("alice", agent, "s", digest, turns)


def test_conversations_of_several_agents_are_merged_in_time_order_within_one_budget():
    one = conversation("a", "", turn(1, second=1), turn(2, second=4))
    two = conversation("b", "", turn(1, second=2), turn(2, second=3))
    assert merged([one, two], 30) == [("user", "turn 1"), ("user", "turn 2"), ("user", "turn 2")]
    assert len(merged([one, two], 1)) == 1
    assert merged([], 10) == []


def test_digests_of_several_agents_each_stand_under_their_agents_name():
    one, two = conversation("a", "First."), conversation("b", "Second.")
    assert summary([one]) == "First."
    assert summary([one, two]) == "a:\nFirst.\n\nb:\nSecond."
    assert summary([]) == ""
