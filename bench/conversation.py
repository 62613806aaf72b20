"""Synthetic talk: two people tell each other about their lives, 50 to 70 tokens a turn."""

import random
from collections.abc import Iterator, Sequence

Turn = tuple[str, str]

_OPENINGS = (
    "Hey, it has been a while since we talked about this.",
    "You will not believe how this week went for me.",
    "Thanks for asking, I have been meaning to tell you.",
    "That reminds me of what happened after we last spoke.",
)
_EVENTS = (
    "we moved the {thing} into the new {place} on {day}",
    "my {person} started to paint the {place} and sold a first {thing}",
    "I signed up for a {thing} class near the {place} every {day}",
    "the {place} where I volunteer asked me to repair their old {thing}",
    "I took my {person} to the {place} and we finally found a {thing}",
)
_FEELINGS = (
    "It was harder than I expected, but it gave me a lot of energy.",
    "I was nervous before, and now I can hardly wait for the next time.",
    "It made me think about what I really want to do next year.",
    "Honestly it was a relief, because I had put it off for months.",
)
_QUESTIONS = (
    "Have you ever tried something like that with your {person}?",
    "What would you do with a {thing} if you were in my place?",
    "Do you still go to the {place} on {day}, or has that changed?",
)
_WORDS = {
    "thing": ("piano", "bicycle", "telescope", "kayak", "loom", "camera", "greenhouse", "violin"),
    "place": ("harbour", "shelter", "studio", "library", "orchard", "workshop", "museum"),
    "person": ("sister", "neighbour", "nephew", "colleague", "grandmother", "roommate"),
    "day": ("Monday", "Tuesday", "Thursday", "Friday", "Saturday", "Sunday"),
}
_ROLES = ("user", "assistant")


def turns(seed: str) -> Iterator[Turn]:
    """An endless conversation; the same seed tells the same."""
    source = random.Random(seed)  # noqa: S311 - text, not secrets
    while True:
        for role in _ROLES:
            yield role, _said(source)


def _said(source: random.Random) -> str:
    events = [_filled(source, event) for event in source.sample(_EVENTS, 2)]
    return (
        f"{source.choice(_OPENINGS)} On the weekend {events[0]}, and {events[1]}. "
        f"{source.choice(_FEELINGS)} {_filled(source, source.choice(_QUESTIONS))}"
    )


def _filled(source: random.Random, template: str) -> str:
    return template.format(**{kind: source.choice(words) for kind, words in _WORDS.items()})


def as_json(turns_: Sequence[Turn]) -> list[dict[str, str]]:
    """Turns as the wire has them."""
    return [{"role": role, "content": content} for role, content in turns_]
