import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kaos_memory.tiers.lexical import MAX_TERMS, Cue, cues, terms, words

STORABLE = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))


def read(text: str) -> list[int]:
    return np.frombuffer(terms(text), "<i4").tolist()


def test_forms_of_a_word_are_one_term_and_function_words_are_none():
    assert read("She was running to the groups") == read("RUN group")
    assert read("I don't, you won't, we're: isn't it?") == []


def test_terms_keep_their_order_and_their_repetitions():
    tea, milk = read("tea")[0], read("milk")[0]
    assert read("Tea, then tea with milk") == [tea, tea, milk]


@pytest.mark.parametrize(
    ("written", "same"),
    [
        ("Caroline's", "Caroline"),
        ("Caroline\N{RIGHT SINGLE QUOTATION MARK}s", "caroline"),
        ("the 8th of May", "8 may"),
        ("\N{FULLWIDTH LATIN SMALL LETTER T}ea", "tea"),
        ("Straße", "STRASSE"),
        ("cafe\N{COMBINING ACUTE ACCENT}", "café"),
        ("snake_case", "snake case"),
    ],
)
def test_spellings_of_the_same_word_are_the_same_terms(written: str, same: str):
    assert read(written) == read(same)


@pytest.mark.parametrize("word", ["हिन्दी", "Привет", "ภาษาไทย", "日本語", "שלום"])
def test_a_word_of_another_script_is_one_term(word: str):
    assert len(read(word)) == 1
    assert read(f"({word}) {word}!") == read(word) * 2


def test_terms_are_the_same_in_every_process():
    code = "from kaos_memory.tiers.lexical import terms; print(terms('Tea with milk').hex())"
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert printed.stdout.decode().strip() == terms("Tea with milk").hex() == "b2d7868e169c26bc"


def test_a_text_has_a_bounded_number_of_terms():
    assert len(read("tea " * 10_000)) == MAX_TERMS
    assert len(read("x" * 200_000)) == 1


def test_words_are_counted_between_white_space():
    assert words("  Tea, with\nmilk ") == 3
    assert words("") == 0


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("I like tea.", Cue(0)),
        ("Tea? Yes, please.", Cue.QUESTION),
        ("Would you like tea?  ", Cue.QUESTION | Cue.CLOSING_QUESTION),
        ("お茶はいかがですか？", Cue.QUESTION | Cue.CLOSING_QUESTION),  # noqa: RUF001
        ("We met YESTERDAY.", Cue.TIME),
        ("Was it in June?", Cue.TIME | Cue.QUESTION | Cue.CLOSING_QUESTION),
        ("", Cue(0)),
    ],
)
def test_cues_tell_questions_and_words_of_time(text: str, found: Cue):
    assert cues(text) == found


def test_a_question_at_the_end_of_a_long_text_is_seen():
    assert cues("tea " * 50_000 + "with milk?") == Cue.QUESTION | Cue.CLOSING_QUESTION


@given(STORABLE)
def test_any_text_has_terms_a_length_and_cues(text: str):
    assert len(terms(text)) % 4 == 0
    assert len(terms(text)) <= 4 * MAX_TERMS
    assert words(text) >= 0
    assert 0 <= cues(text) <= 7
