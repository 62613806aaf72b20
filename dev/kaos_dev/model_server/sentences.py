"""Splitting text into sentences, and telling which of them inform."""

import re
from typing import Final

_FULL_STOPS: Final = "。！？"  # noqa: RUF001 -- the marks of Chinese and Japanese
_END_OF_SENTENCE: Final = re.compile(rf"(?<=[.!?])\s+|(?<=[{_FULL_STOPS}])|\s*\n\s*")
_WORD: Final = re.compile(r"[\w'-]+")
# Scripts that put no spaces between words: each character counts as one.
_UNSPACED: Final = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\u0e00-\u0e7f]")
_MIN_WORDS: Final = 3


def sentences(text: str) -> list[str]:
    """Return the sentences of a text, in order, with their punctuation."""
    return [part.strip() for part in _END_OF_SENTENCE.split(text) if part.strip()]


def words(text: str) -> list[str]:
    """Return the words of a text in lower case."""
    return [word.lower() for word in _WORD.findall(_UNSPACED.sub(r" \g<0> ", text))]


_PLEASANTRIES: Final = frozenset(
    words(
        "hi hello hey good morning afternoon evening night bye goodbye see you later welcome "
        "thanks thank so much very for your help cheers glad to hear it that that's sounds is "
        "ok okay sure yes no please well nice cool great awesome wonderful got of course there"
    )
)


def is_informative(sentence: str) -> bool:
    """Tell a statement from a question, a pleasantry and an interjection."""
    found = words(sentence)
    return (
        not sentence.rstrip("\"')").endswith(("?", _FULL_STOPS[-1]))
        and len(found) >= _MIN_WORDS
        and not _PLEASANTRIES.issuperset(found)
    )


def as_statement(speaker: str, sentence: str) -> str:
    """Return the sentence in the third person: its words unchanged, so that it can be traced."""
    return f"{speaker} said that {sentence.rstrip(f' .!{_FULL_STOPS}')}"
