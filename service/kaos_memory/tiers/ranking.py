"""Which facts answer a query: words and meaning, fused. Columns of numbers in, an order out.

A fact's score is its BM25 as a share of the best one's, where the speaker's name counts as a word,
and the words of neighbouring turns and of the day count in part; plus its cosine's distance from
the mean of all of the owner's facts, in standard deviations, weighted; plus what its speaker and
the form of its text say about its worth. The formula was chosen on conversations between two
persons, one fact for each turn (LoCoMo).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from kaos_memory.settings import Ranking
from kaos_memory.tiers.lexical import MAX_TERMS, Cue, terms

MAX_QUERY_TERMS: Final = 64
"""Different terms of a query that are looked for: the first ones. More cost each fact time."""

_TERM_BYTES: Final = 4
TERMS_COMPARED: Final = 2_000_000
"""Terms of all facts of one recall, about; where they are more, each fact's first ones count."""
LEAST_TERMS: Final = 64
"""Terms of each fact that count, however many facts are compared."""

Integers = npt.NDArray[np.integer]
Floats = npt.NDArray[np.floating]
Flags = npt.NDArray[np.bool_]

_ROLES: Final = frozenset({"", "user", "assistant", "system", "tool"})
"""Speakers that are not persons."""


def _read(text: str) -> Integers:
    return np.frombuffer(terms(text), "<i4")


def _term(word: str) -> int:
    return int(_read(word)[0])


_DAYS: Final = np.array([_term(str(day)) for day in range(1, 32)])
_NAMES_OF_MONTHS: Final = """
    January February March April May June July August September October November December
"""
_MONTHS: Final = np.array([_term(month) for month in _NAMES_OF_MONTHS.split()])


@dataclass(frozen=True)
class Candidates:
    """All facts of an owner as columns: entry `i` of each is of fact `i`."""

    ids: npt.NDArray[np.void]
    """The facts' ids, 16 bytes each."""
    texts: Integers
    """Equal for identical texts: the first 8 bytes of their hashes."""
    conversations: Integers
    """Equal for facts of the same principal, agent and session; from 0."""
    positions: Integers
    """The turn that a fact is, from 1; 0 for facts that are not exactly one turn."""
    lengths: Integers
    """How many terms each fact has."""
    terms: Integers
    """The terms of all facts (`lexical.terms`), those of one after those of the other."""
    words: Integers
    cues: Integers
    """Bits of `lexical.Cue`."""
    speakers: Integers
    """Who said each fact, as an index of `names`."""
    names: Sequence[str]
    """Speakers: persons, roles, and '' for unknown."""
    days: Integers
    """When each fact was said: days since 1970 in UTC."""
    made: Integers
    """Grows with the time of storing; it decides between equal scores."""
    cosines: Floats | None
    """Similarities to the query; None where it could not be embedded."""
    sample: Flags | None = None
    """Those that stand for all of the owner's facts in means and frequencies, where these are
    not all; None: every one of them."""

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True)
class Ranked:
    """A fact's place among the candidates, and the score that it is ordered by."""

    index: int
    score: float


def terms_of_each(facts: int) -> int:
    """How many terms of each fact count where so many facts are compared."""
    return max(LEAST_TERMS, min(MAX_TERMS, TERMS_COMPARED // max(1, facts)))


def rank(
    candidates: Candidates, query: str, weights: Ranking, most: int, threshold: float | None
) -> list[Ranked]:
    """The facts that answer a query best, best first; identical texts count once.

    `threshold` leaves out the facts whose cosine is below it, where there are cosines.
    """
    if not len(candidates):
        return []
    wanted = _first_different(_read(query), MAX_QUERY_TERMS)
    named = _names_of_persons(candidates.names, wanted)
    scores = (
        _share_of_best(_bm25(candidates, wanted, named, weights))
        + _speaker_prior(candidates, named, weights)
        + _form_priors(candidates, weights)
    )
    cosines = candidates.cosines
    if cosines is not None:
        scores = scores + weights.cosine_weight * _standardised(cosines, candidates.sample)
    order = np.lexsort((candidates.made, -scores))
    if cosines is not None and threshold is not None:
        order = order[cosines[order] >= threshold]
    _, first = np.unique(candidates.texts[order], return_index=True)
    best = order[np.sort(first)[:most]]
    return [Ranked(int(index), float(scores[index])) for index in best]


def _first_different(terms_in_order: Integers, most: int) -> Integers:
    """The first different terms, sorted."""
    _, first = np.unique(terms_in_order, return_index=True)
    return np.sort(terms_in_order[np.sort(first)[:most]])


def _names_of_persons(names: Sequence[str], wanted: Integers) -> Flags:
    """Which wanted terms (rows) are part of which person's name (columns); none of a role's."""
    found = np.zeros((len(wanted), len(names)), np.bool_)
    # Together, because a numpy call for each of many names takes longer than all the rest.
    parts = [b"" if name in _ROLES else terms(name) for name in names]
    term, at = _occurrences(np.frombuffer(b"".join(parts), "<i4"), wanted)
    ends = np.cumsum([len(part) // _TERM_BYTES for part in parts])
    found[term, np.searchsorted(ends, at, side="right")] = True
    return found


def _bm25(candidates: Candidates, wanted: Integers, named: Flags, weights: Ranking) -> Floats:
    frequencies = _frequencies(candidates, wanted, weights) + named[:, candidates.speakers]
    lengths, sample = candidates.lengths, candidates.sample
    known = frequencies if sample is None else frequencies[:, sample]
    count, having = known.shape[1], np.count_nonzero(known, axis=1)[:, np.newaxis]
    rarity = np.log1p((count - having + 0.5) / (having + 0.5))
    usual = lengths.mean() if sample is None else lengths[sample].mean()
    relative = lengths / max(float(usual), 1.0)
    norm = weights.bm25_k1 * (1 - weights.bm25_b + weights.bm25_b * relative)
    # With some weights a fact without the term would be 0 / 0.
    saturated = np.zeros_like(frequencies)
    np.divide(frequencies, frequencies + norm, out=saturated, where=frequencies > 0)
    return ((weights.bm25_k1 + 1) * rarity * saturated).sum(axis=0)


def _frequencies(candidates: Candidates, wanted: Integers, weights: Ranking) -> Floats:
    """How often each fact (column) has each wanted term (row), neighbours and date included."""
    count = len(candidates)
    term, at = _occurrences(candidates.terms, wanted)
    fact = np.searchsorted(np.cumsum(candidates.lengths), at, side="right")
    own = np.bincount(term * (count + 1) + fact, minlength=len(wanted) * (count + 1))
    own = own.reshape(len(wanted), count + 1)  # the last column is of no fact
    frequencies = own[:, :count].astype(np.float64)
    steps = {
        -1: weights.previous_weight,
        -2: weights.second_previous_weight,
        1: weights.next_weight,
        2: weights.second_next_weight,
    }
    for step, neighbour in _neighbours(candidates, list(steps)):
        frequencies += steps[step] * own[:, neighbour]
    for part in _date_terms(candidates.days):
        frequencies += weights.date_weight * (wanted[:, np.newaxis] == part)
    return frequencies


def _occurrences(all_terms: Integers, wanted: Integers) -> tuple[Integers, Integers]:
    """Where wanted terms (sorted) stand: indexes of the term, and of the place."""
    if not len(wanted):
        return wanted, wanted
    # Most terms of most facts are not wanted: half of their bits tell.
    maybe = np.zeros(1 << 16, dtype=np.bool_)
    maybe[wanted & 0xFFFF] = True
    at = np.flatnonzero(maybe[all_terms & 0xFFFF])
    found = all_terms[at]
    term = np.minimum(np.searchsorted(wanted, found), len(wanted) - 1)
    right = wanted[term] == found
    return term[right], at[right]


def _neighbours(candidates: Candidates, steps: Sequence[int]) -> Iterator[tuple[int, Integers]]:
    """For each step the index of the fact that is so many turns away, or -1, of each fact."""
    is_turn = candidates.positions > 0
    # Conversation and position in one number; facts that are no turn are far from all.
    places = candidates.conversations.astype(np.int64) << 32 | candidates.positions
    places = np.where(is_turn, places, -(1 << 32))
    order = np.argsort(places, kind="stable")
    ordered = places[order]
    for step in steps:
        at = np.minimum(np.searchsorted(ordered, places + step), len(places) - 1)
        yield step, np.where(ordered[at] == places + step, order[at], -1)


def _date_terms(days: Integers) -> tuple[Integers, Integers, Integers]:
    """The day of the month, the month and the year of each fact, as terms."""
    dates = days.astype("datetime64[D]")
    months = dates.astype("datetime64[M]")
    years, year = np.unique(dates.astype("datetime64[Y]").astype(np.int64), return_inverse=True)
    return (
        _DAYS[(dates - months).astype(np.int64)],
        _MONTHS[months.astype(np.int64) % 12],
        np.array([_term(str(1970 + since)) for since in years.tolist()])[year],
    )


def _share_of_best(scores: Floats) -> Floats:
    best = scores.max()
    return scores / best if best > 0 else scores


def _standardised(cosines: Floats, sample: Flags | None) -> Floats:
    known = cosines if sample is None else cosines[sample]
    spread = float(known.std()) or float(cosines.std())  # a sample may be all alike
    return (cosines - known.mean()) / spread if spread > 0 else np.zeros_like(cosines)


def _speaker_prior(candidates: Candidates, named: Flags, weights: Ranking) -> Floats:
    """All of the weight where the query names the speaker alone, none where it names another.

    Half of it where that is not known: the query names nobody or several, or the fact has no
    person as its speaker.
    """
    is_named = named.any(axis=0)
    is_person = np.array([name not in _ROLES for name in candidates.names])
    alone = np.count_nonzero(is_named) == 1
    share = np.where(is_person & alone, is_named.astype(np.float64), 0.5)
    return weights.speaker_weight * share[candidates.speakers]


def _form_priors(candidates: Candidates, weights: Ranking) -> Floats:
    cues = candidates.cues
    return (
        weights.length_weight * np.log1p(candidates.words)
        + weights.time_weight * ((cues & Cue.TIME) > 0)
        - weights.question_penalty * ((cues & Cue.QUESTION) > 0)
        - weights.closing_question_penalty * ((cues & Cue.CLOSING_QUESTION) > 0)
    )
