"""What is expected of an order, and of each part of a score by itself."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kaos_memory.settings import Ranking
from kaos_memory.tiers.lexical import cues, terms, words
from kaos_memory.tiers.memory import fact_hash
from kaos_memory.tiers.ranking import MAX_QUERY_TERMS, Candidates, Ranked, rank

WORDS_ALONE = Ranking(
    bm25_b=0,
    previous_weight=0,
    second_previous_weight=0,
    next_weight=0,
    second_next_weight=0,
    date_weight=0,
    cosine_weight=0,
    speaker_weight=0,
    question_penalty=0,
    closing_question_penalty=0,
    time_weight=0,
    length_weight=0,
)


@dataclass(frozen=True)
class Said:
    """A fact as a test gives it; turns of conversation 0, unless it says otherwise."""

    text: str
    position: int = 0
    conversation: int = 0
    speaker: str = ""
    day: date = date(2000, 1, 1)
    cosine: float = 0.0


def columns(facts: Sequence[Said], *, cosines: bool = True) -> Candidates:
    lists = [np.frombuffer(terms(fact.text), "<i4") for fact in facts]
    names = sorted({fact.speaker for fact in facts})
    return Candidates(
        ids=np.array([index.to_bytes(16, "big") for index in range(len(facts))], "V16"),
        texts=np.array([int(fact_hash(fact.text)[:15], 16) for fact in facts], np.int64),
        conversations=np.array([fact.conversation for fact in facts], np.int32),
        positions=np.array([fact.position for fact in facts], np.int32),
        lengths=np.array([len(one) for one in lists], np.int32),
        terms=np.concatenate([*lists, np.array([], "<i4")]),
        words=np.array([words(fact.text) for fact in facts], np.int32),
        cues=np.array([cues(fact.text) for fact in facts], np.int16),
        speakers=np.array([names.index(fact.speaker) for fact in facts], np.int32),
        names=names,
        days=np.array([(fact.day - date(1970, 1, 1)).days for fact in facts], np.int32),
        made=np.arange(len(facts)),
        cosines=np.array([fact.cosine for fact in facts], np.float32) if cosines else None,
    )


def scores(facts: Sequence[Said], query: str, **weights: float) -> list[float]:
    """The scores of all facts, in their own order."""
    chosen = WORDS_ALONE.model_copy(update=weights)
    ranked = rank(columns(facts), query, chosen, len(facts), None)
    assert len(ranked) == len(facts)
    return [found.score for found in sorted(ranked, key=lambda found: found.index)]


def order(facts: Sequence[Said], query: str, **weights: float) -> list[int]:
    chosen = WORDS_ALONE.model_copy(update=weights)
    return [found.index for found in rank(columns(facts), query, chosen, len(facts), None)]


def test_no_facts_no_answer():
    assert rank(columns([]), "tea", Ranking(), 10, None) == []


def test_words_score_by_how_rare_and_how_often_they_are():
    facts = [Said("tea milk"), Said("tea tea"), Said("tea"), Said("sugar")]
    k1, count = 0.9, 4

    def expected(*found: tuple[int, int]) -> float:
        return sum(
            math.log1p((count - having + 0.5) / (having + 0.5)) * often * (k1 + 1) / (often + k1)
            for often, having in found
        )

    best = expected((1, 3), (1, 1))
    assert scores(facts, "tea with milk") == pytest.approx(
        [1.0, expected((2, 3)) / best, expected((1, 3)) / best, 0.0]
    )


def test_longer_facts_need_a_word_more_often():
    facts = [Said("tea milk sugar bread butter"), Said("tea")]
    assert scores(facts, "tea") == [1.0, 1.0]
    long, short = scores(facts, "tea", bm25_b=1.0)
    norm = 0.9 * 5 / 3, 0.9 * 1 / 3
    assert (long, short) == (pytest.approx((1 + norm[1]) / (1 + norm[0])), 1.0)


def test_a_turn_has_part_of_its_neighbours_words():
    said = ["walk", "swim", "tea", "read", "sleep", "run"]
    facts = [Said(text, position) for position, text in enumerate(said, start=1)]
    weights = {
        "previous_weight": 0.5,
        "second_previous_weight": 0.25,
        "next_weight": 0.3,
        "second_next_weight": 0.15,
    }

    def share(often: float) -> float:
        return often / (often + 0.9) * 1.9

    found = scores(facts, "tea", **weights)
    assert found == pytest.approx([share(f) for f in (0.15, 0.3, 1.0, 0.5, 0.25, 0.0)])


def test_only_turns_of_the_same_conversation_are_neighbours():
    facts = [
        Said("tea", position=5),
        Said("walk", position=6, conversation=1),
        Said("swim", position=7),
        Said("read"),
        Said("sleep", position=1),
    ]
    assert scores(facts, "tea", previous_weight=1.0, next_weight=1.0) == [1.0, 0, 0, 0, 0]


def test_all_facts_of_one_turn_have_the_same_neighbours():
    facts = [Said("walk", 2), Said("tea", 1), Said("swim", 2)]
    walk, tea, swim = scores(facts, "tea", previous_weight=0.5)
    assert tea == 1.0
    assert walk == swim > 0


@pytest.mark.parametrize("query", ["on the 8th?", "in May", "in 2023"])
def test_the_date_counts_as_words(query: str):
    facts = [Said("tea", day=date(2023, 5, 8)), Said("milk", day=date(1969, 12, 31))]
    assert scores(facts, query, date_weight=0.5) == [1.0, 0.0]
    assert scores(facts, query) == [0.0, 0.0]
    assert order(facts, "31 December 1969", date_weight=0.5) == [1, 0]


def test_a_speakers_name_is_a_word_of_what_they_said():
    facts = [Said("tea", speaker="Ann"), Said("tea!", speaker="Bob"), Said("hey", speaker="user")]
    ann, bob, other = scores(facts, "Ann's tea")
    assert ann == 1.0 > bob > other == 0.0
    assert scores(facts, "the user") == [0.0, 0.0, 0.0]


def test_each_of_many_names_is_a_word_of_what_its_person_said():
    people = [f"person{at} family{at % 2}" for at in range(500)]
    facts = [Said(f"tea {at}", speaker=name) for at, name in enumerate([*people, "user", ""])]
    assert order(facts, "person321")[0] == 321
    assert [score > 0 for score in scores(facts, "family1 user")] == [
        *(at % 2 == 1 for at in range(500)), False, False,
    ]  # fmt: skip


def test_a_querys_first_different_terms_are_looked_for():
    facts = [Said("first"), Said("inside"), Said("beyond")]
    filler = [f"w{at}" for at in range(MAX_QUERY_TERMS - 2)]
    query = " ".join(["first"] * 500 + filler + ["inside", "beyond"])
    assert [score > 0 for score in scores(facts, query)] == [True, True, False]


def test_the_cosine_counts_in_deviations_from_the_mean_of_all_facts():
    facts = [Said("tea", cosine=0.5), Said("milk", cosine=0.3), Said("oil", cosine=0.1)]
    step = math.sqrt(1.5)
    assert scores(facts, "warm drinks", cosine_weight=0.14) == pytest.approx(
        [0.14 * step, 0, -0.14 * step], abs=1e-6
    )
    assert order(facts, "oil", cosine_weight=0.14) == [2, 0, 1]


def test_equal_cosines_decide_nothing():
    assert scores([Said("tea", cosine=0.5), Said("milk", cosine=0.5)], "x", cosine_weight=1) == [
        0.0,
        0.0,
    ]


def test_without_cosines_words_and_form_decide_and_no_threshold_holds():
    facts = [Said("milk"), Said("tea")]
    ranked = rank(columns(facts, cosines=False), "tea", WORDS_ALONE, 10, 0.9)
    assert ranked == [Ranked(1, 1.0), Ranked(0, 0.0)]


def test_facts_below_the_threshold_are_left_out_however_well_they_rank():
    facts = [Said("tea", cosine=0.2), Said("milk", cosine=0.5), Said("oil", cosine=0.7)]
    ranked = rank(columns(facts), "tea", Ranking(), 10, 0.5)
    assert [found.index for found in ranked] == [2, 1]


def test_the_speaker_counts_where_one_person_is_named():
    facts = [Said("tea", speaker=name) for name in ("Ann Lee", "Bob", "user", "")]
    facts = [replace(fact, text=fact.text + "!" * at) for at, fact in enumerate(facts)]

    def prior(query: str) -> list[float]:
        only = WORDS_ALONE.model_copy(update={"speaker_weight": 0.22})
        without = rank(columns(facts), query, WORDS_ALONE, 9, None)
        found = rank(columns(facts), query, only, 9, None)
        lexical = {item.index: item.score for item in without}
        return [
            round(item.score - lexical[item.index], 6)
            for item in sorted(found, key=lambda item: item.index)
        ]

    assert prior("What does Ann drink?") == [0.22, 0.0, 0.11, 0.11]
    assert prior("Where is Bob?") == [0.0, 0.22, 0.11, 0.11]
    assert prior("Do Ann and Bob drink?") == [0.11] * 4
    assert prior("Who drinks?") == prior("the user?") == [0.11] * 4


def test_the_form_of_a_text_counts():
    facts = [Said("so?"), Said("so? yes"), Said("yesterday"), Said("so")]
    assert scores(facts, "x", closing_question_penalty=0.17, question_penalty=0.06) == (
        pytest.approx([-0.23, -0.06, 0, 0])
    )
    assert scores(facts, "x", time_weight=0.12) == [0, 0, 0.12, 0]
    assert scores(facts, "x", length_weight=0.12) == pytest.approx(
        [0.12 * math.log(1 + many) for many in (1, 2, 1, 1)]
    )


def test_a_sample_stands_for_all_in_means_and_frequencies():
    facts = [Said("tea"), Said("tea milk", cosine=1.0), Said("oil", cosine=-1.0), Said("oil milk")]
    some = replace(columns(facts), sample=np.array([False, True, True, False]))
    found = {item.index: item.score for item in rank(some, "tea milk", WORDS_ALONE, 9, None)}
    assert found == pytest.approx({0: 0.5, 1: 1.0, 2: 0.0, 3: 0.5})  # one in two has each word
    by_meaning = WORDS_ALONE.model_copy(update={"cosine_weight": 0.14})
    found = {item.index: item.score for item in rank(some, "x", by_meaning, 9, None)}
    assert found == pytest.approx({0: 0.0, 1: 0.14, 2: -0.14, 3: 0.0})


def test_a_sample_of_equal_cosines_leaves_the_others_their_distance():
    facts = [Said("tea", cosine=0.5), Said("milk", cosine=0.1), Said("oil", cosine=0.1)]
    some = replace(columns(facts), sample=np.array([False, True, True]))
    assert rank(some, "x", Ranking(), 1, None)[0].index == 0


def test_identical_texts_count_once_at_the_best_of_their_places():
    facts = [Said("tea", 9), Said("milk", 5), Said("tea", 2), Said("sugar", 1)]
    assert order(facts, "sugar", previous_weight=0.5) == [3, 2, 1]
    ranked = rank(columns(facts), "tea", WORDS_ALONE, 2, None)
    assert [found.index for found in ranked] == [0, 1]


TEXTS = st.lists(st.sampled_from(["tea", "milk", "may", "2000", "?", "Ann"]), max_size=5).map(
    " ".join
)
FACTS = st.lists(
    st.builds(
        Said,
        TEXTS,
        position=st.integers(0, 5),
        conversation=st.integers(0, 2),
        speaker=st.sampled_from(["", "user", "Ann", "Bob"]),
        day=st.dates(),
        cosine=st.floats(-1, 1, width=32),
    ),
    max_size=12,
)
WEIGHTS = st.builds(Ranking, bm25_k1=st.sampled_from([0, 0.9, 5]), bm25_b=st.floats(0, 1))


@given(FACTS, TEXTS, WEIGHTS, st.integers(1, 15), st.none() | st.floats(0, 1, width=32))
def test_the_answer_is_the_best_of_all_without_repetition(
    facts: list[Said], query: str, weights: Ranking, most: int, threshold: float | None
):
    candidates = columns(facts)
    ranked = rank(candidates, query, weights, most, threshold)
    everything = rank(candidates, query, weights, len(facts), threshold)
    assert ranked == everything[:most]
    texts = [facts[found.index].text for found in everything]
    assert len(set(texts)) == len(texts)
    assert set(texts) == {f.text for f in facts if threshold is None or f.cosine >= threshold}
    assert [f.score for f in everything] == sorted((f.score for f in everything), reverse=True)
    assert all(math.isfinite(found.score) for found in everything)
