"""What is computed of a text once, so that ranking never reads texts: terms, length, cues."""

import re
import threading
import unicodedata
import zlib
from collections.abc import Callable, Iterator
from enum import IntFlag
from itertools import islice
from typing import Final

import numpy as np
import Stemmer

MAX_TERMS: Final = 2_000
"""Terms kept of one text; what it says beyond them is found through its embedding only."""

_MAX_CHARACTERS: Final = 16 * MAX_TERMS
_MAX_WORD: Final = 64
"""Characters that tell one word from another."""

# `\w` lacks the marks that are part of words in scripts such as Devanagari and Thai.
_MARKS: Final = "".join(
    character
    for character in map(chr, range(0x300, 0xFFFF))
    if unicodedata.category(character).startswith("M")
)
_WORD: Final = re.compile(rf"[^\W_](?:[^\W_]|[{_MARKS}])*")
_ORDINAL: Final = re.compile(r"(\d+)(?:st|nd|rd|th)")
_QUESTION_MARKS: Final = ("?", "\N{FULLWIDTH QUESTION MARK}", "\N{ARABIC QUESTION MARK}")

# English function words, and what is left of contractions ("don't") without their apostrophe.
_FUNCTION_WORDS: Final = """
    i me my myself we our ours ourselves you your yours yourself yourselves he him his himself she
    her hers herself it its itself they them their theirs themselves what which who whom this that
    these those am is are was were be been being have has had having do does did doing a an the and
    but if or because as until while of at by for with about against between into through during
    before after above below to from up down in out on off over under again further then once here
    there when where why how all any both each few more most other some such no nor not only own
    same so than too very can will just should now
    s t d m o y ll re ve ain aren couldn didn doesn don hadn hasn haven isn ma mightn mustn needn
    shan shouldn wasn weren won wouldn
"""
_TIME: Final = """
    yesterday today tomorrow tonight morning afternoon evening night week weekend month year
    weeks weekends months years days ago last next recently soon
    monday tuesday wednesday thursday friday saturday sunday
    january february march april june july august september october november december
"""
_STOP_WORDS: Final = frozenset(_FUNCTION_WORDS.split())
_TIME_WORDS: Final = frozenset(_TIME.split())


class _Stemmer(threading.local):
    """One for each thread, as they must be. Without a cache: it would keep erased words."""

    def __init__(self) -> None:
        self.stem: Callable[[str], str] = Stemmer.Stemmer("english", 0).stemWord


_stemmer: Final = _Stemmer()


class Cue(IntFlag):
    """What the form of a text says about it."""

    QUESTION = 1
    """Has a question mark."""
    CLOSING_QUESTION = 2
    """Ends with one."""
    TIME = 4
    """Has a word of time."""


def terms(text: str) -> bytes:
    """The hashes of a text's stems without stop words, in its order, as little-endian int32.

    The same text has the same terms in every process and on every platform. Words of other
    languages than English are kept, and may be cut where an English word would have an ending.
    """
    stem = _stemmer.stem
    kept = (zlib.crc32(stem(word).encode()) for word in _words(text) if word not in _STOP_WORDS)
    return np.fromiter(islice(kept, MAX_TERMS), dtype="<u4").tobytes()


def words(text: str) -> int:
    """How many words a text has, separated by white space."""
    return len(text.split())


def cues(text: str) -> Cue:
    """What the form of a text says about it."""
    found = Cue(0)
    if any(mark in text for mark in _QUESTION_MARKS):
        found |= Cue.QUESTION
    if text.rstrip().endswith(_QUESTION_MARKS):
        found |= Cue.CLOSING_QUESTION
    if not _TIME_WORDS.isdisjoint(_words(text)):
        found |= Cue.TIME
    return found


def _words(text: str) -> Iterator[str]:
    normal = unicodedata.normalize("NFKC", text[:_MAX_CHARACTERS]).casefold()
    for found in _WORD.finditer(normal):
        word = found[0][:_MAX_WORD]
        ordinal = _ORDINAL.fullmatch(word)
        yield ordinal[1] if ordinal else word
