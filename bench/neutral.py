"""Facts and questions without a word in common: no lexical ranking prefers any fact.

All facts are of one shape too: as many words and letters, no question mark, no name, no word of
time. So whatever a subject adds to the cosine is the same for every fact, and the exact ranking
by cosine is what each of them should return.
"""

import random
from typing import Final

_THINGS: Final = ("violin", "camera", "kettle", "basket", "candle", "carpet", "ladder", "hammer")
_PLACES: Final = ("garden", "museum", "harbor", "cellar", "temple", "forest", "bridge", "tunnel")
_ANIMALS: Final = ("rabbit", "donkey", "falcon", "salmon", "beaver", "turtle", "badger", "magpie")
_VERBS: Final = ("follow", "admire", "choose", "rescue")
_DIGITS: Final = "bcdfghjklmnpqrtv"


def facts(count: int, owner: str) -> list[str]:
    """Facts of one owner, all different."""
    source = random.Random(owner)  # noqa: S311 - text, not secrets
    return [_fact(source, number) for number in range(count)]


def questions(count: int) -> list[str]:
    """Questions, all different."""
    source = random.Random("questions")  # noqa: S311
    return [
        f"Which {source.choice(_ANIMALS)} would {source.choice(_VERBS)} q{_letters(number)}?"
        for number in range(count)
    ]


def _fact(source: random.Random, number: int) -> str:
    thing, other = source.sample(_THINGS, 2)
    return (
        f"Keeps the {thing} from the {source.choice(_PLACES)} beside the {other} "
        f"marked x{_letters(number)}"
    )


def _letters(number: int) -> str:
    """A number as five letters: as digits it would be a word of facts and questions alike."""
    return "".join(_DIGITS[number >> shift & 15] for shift in (16, 12, 8, 4, 0))
