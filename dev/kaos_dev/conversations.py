"""Conversations to play: a bundled one, and a real one where its data set is present.

LoCoMo is licensed CC BY-NC, so it is read where it lies and is never part of this repository.
"""

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]


@dataclass(frozen=True)
class Session:
    """Turns as (role, content), under a session id."""

    id: str
    turns: Sequence[tuple[str, str]]


SUPPORT = Session(
    "ticket-7",
    [
        ("user", "Our nightly export to the warehouse has failed since Tuesday evening."),
        ("assistant", "I can look into that. Which customers does the failing export concern?"),
        ("user", "Only the Nordic customers, all others arrive in the warehouse as usual."),
        ("assistant", "Noted: the export fails for Nordic customers only, since Tuesday."),
        ("user", "The log says that the currency NOK is missing from the rates file."),
        ("assistant", "A missing NOK rate would stop exactly these rows. Was the file changed?"),
        ("user", "Yes, Petra replaced the rates file on Tuesday at five in the afternoon."),
        ("assistant", "Then restoring the old rates file should bring the export back."),
        ("user", "Restored it, and the export of the Nordic customers runs again."),
        ("assistant", "Good. I suggest a check that refuses a rates file without all currencies."),
    ],
)


def locomo_path() -> Path:
    """Where the data set is looked for: `KAOS_LOCOMO`, or beside the repository."""
    default = REPOSITORY.parent / "shared" / "data" / "locomo10.json"
    return Path(os.environ.get("KAOS_LOCOMO", default))


def locomo(number: int = 1) -> list[Session]:
    """The sessions of one of LoCoMo's conversations; the first speaker is the user.

    Raises:
        FileNotFoundError: the data set is not here.
    """
    conversation = json.loads(locomo_path().read_text())[number - 1]["conversation"]
    return list(_sessions(conversation, f"locomo-{number}"))


def present(number: int = 1) -> list[Session]:
    """The data set's conversation where it is present, else the bundled one."""
    return locomo(number) if locomo_path().exists() else [SUPPORT]


def _sessions(conversation: dict[str, object], name: str) -> Iterator[Session]:
    roles = {conversation["speaker_a"]: "user", conversation["speaker_b"]: "assistant"}
    number = 1
    while isinstance(turns := conversation.get(f"session_{number}"), list):
        texts = [(roles[turn["speaker"]], _text(turn)) for turn in turns]
        yield Session(f"{name}-{number}", texts)
        number += 1


def _text(turn: dict[str, str]) -> str:
    """What was said, with the caption of a picture that was shown."""
    caption = turn.get("blip_caption")
    said = turn["text"] or "Look at this."
    return f"{said} [shows {caption}]" if caption else said
