"""LoCoMo: conversations of many sessions, and questions that name the turns with the answer.

Licensed CC BY-NC, so it is read where it lies and is never part of this repository.
"""

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

CATEGORIES = {
    1: "multi-hop",
    2: "temporal",
    3: "open-domain",
    4: "single-hop",
    5: "adversarial",
}
"""What its numbers of categories mean."""

# Most evidence is one id in one text. Some texts hold several, and one has a leading zero.
_TURN_ID = re.compile(r"D(\d+):(\d+)")
_SAID_AT = "%I:%M %p on %d %B, %Y"


@dataclass(frozen=True)
class Turn:
    """What one speaker said, with the caption of a picture that was shown."""

    id: str
    speaker: str
    text: str

    @property
    def line(self) -> str:
        """The turn for who takes no names of speakers."""
        return f"{self.speaker}: {self.text}"


@dataclass(frozen=True)
class Session:
    """Turns of one day."""

    id: str
    said_at: datetime
    turns: Sequence[Turn]


@dataclass(frozen=True)
class Question:
    """A question, and the ids of the turns that hold its answer."""

    text: str
    category: str
    evidence: frozenset[str]


@dataclass(frozen=True)
class Conversation:
    """All that two people said to each other, and what is asked about it."""

    name: str
    sessions: Sequence[Session]
    questions: Sequence[Question]


def conversations(path: Path) -> list[Conversation]:
    """All of them. Questions without evidence in the turns are left out."""
    return [
        _conversation(f"locomo-{number}", raw)
        for number, raw in enumerate(json.loads(path.read_text()), start=1)
    ]


def _conversation(name: str, raw: dict[str, Any]) -> Conversation:
    sessions = list(_sessions(name, raw["conversation"]))
    # Its ids are unique within a conversation only; these are unique in the data set.
    known = {turn.id for session in sessions for turn in session.turns}
    questions = [
        Question(asked["question"], CATEGORIES[asked["category"]], evidence)
        for asked in raw["qa"]
        if (evidence := frozenset(_evidence(name, asked.get("evidence", ()))) & known)
    ]
    return Conversation(name, sessions, questions)


def _sessions(name: str, raw: dict[str, Any]) -> Iterator[Session]:
    number = 1
    while (turns := raw.get(f"session_{number}")) is not None:
        at = raw[f"session_{number}_date_time"]
        yield Session(
            f"{name}-{number}",
            datetime.strptime(at, _SAID_AT).replace(tzinfo=UTC),
            [Turn(f"{name}/{turn['dia_id']}", turn["speaker"], _text(turn)) for turn in turns],
        )
        number += 1


def _text(turn: dict[str, str]) -> str:
    caption = turn.get("blip_caption")
    said = turn["text"].strip() or "Look at this."
    return f"{said} [shows {caption}]" if caption else said


def _evidence(name: str, given: Sequence[str]) -> Iterator[str]:
    for text in given:
        for session, turn in _TURN_ID.findall(text):
            yield f"{name}/D{int(session)}:{int(turn)}"


class Finder:
    """Tells which turns a text that was found is, or comes from."""

    def __init__(self, sessions: Sequence[Session]) -> None:
        self._texts: defaultdict[str, set[str]] = defaultdict(set)
        for session in sessions:
            for turn in session.turns:
                # Who said the same twice is found with either.
                for text in (turn.text, turn.line):
                    self._texts[text].add(turn.id)

    def turns_of(self, text: str) -> frozenset[str]:
        """The turns of exactly that text, with or without the speaker's name."""
        return frozenset(self._texts.get(text, ()))

    def turns_holding(self, text: str) -> frozenset[str]:
        """The turns in which that text stands."""
        return frozenset(
            turn for said, ids in self._texts.items() if text and text in said for turn in ids
        )
