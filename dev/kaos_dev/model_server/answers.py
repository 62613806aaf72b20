"""The rules that answer chats: the same prompt always gets the same answer.

Which job is asked is told by the shape of the prompt:

- **extract** - Mem0 2.2.1's additive extraction: a message with the sections `## Existing
  Memories`, `## New Messages` and `## Observation Date`. Answer: `{"memory": [{"id", "text",
  "attributed_to"}, ...]}`, one fact for each informative sentence of the new messages.
- **fold** - a digest: `<previous_digest>...</previous_digest>` and `<turns>...</turns>` with a
  line `[position] role: content` for each turn. Answer: a narrative of at most 120 words.
- **converse** - everything else: the facts of the context that fit the question, then its echo.
"""

import json
import re
from collections.abc import Iterator, Sequence
from typing import Final

from kaos_dev.model_server.requests import Message
from kaos_dev.model_server.sentences import as_statement, is_informative, sentences, words

DIGEST_WORDS: Final = 120

_NEW_MESSAGES: Final = re.compile(
    # Mem0 writes the existing memories as one line of JSON, so the first heading after it is real;
    # so is the last date, whatever the messages between them contain.
    r"^## Existing Memories\n[^\n]*\n\n## New Messages\n(.*)\n\n## Observation Date\n",
    re.DOTALL | re.MULTILINE,
)
_SPOKEN: Final = re.compile(r"^(system|user|assistant): ", re.MULTILINE)
_NAMED_SPEAKER: Final = re.compile(r"([A-Z][\w'-]*(?: [A-Z][\w'-]*)?): (?=\S)")
_DIGEST_PROMPT: Final = re.compile(
    r"<previous_digest>(.*?)</previous_digest>.*?<turns>(.*)</turns>", re.DOTALL
)
_DATED: Final = re.compile(r"^\[\d{4}-\d\d-\d\d\] ")
_TURN: Final = re.compile(r"^\[\d+\] (\w+): ", re.MULTILINE)
_REMEMBERED: Final = re.compile(r"^\s*(?:[-*•]|\d+[.)])\s+(\S.*?)\s*$", re.MULTILINE)
_MAX_REMEMBERED: Final = 3
# A word of three letters says little about what is asked.
_MIN_TELLING_LETTERS: Final = 4


def answer(messages: Sequence[Message], *, as_json: bool) -> str:
    """Return the answer to a conversation.

    `as_json`: a JSON object is asked for; an extraction is one in any case.
    """
    prompt = messages[-1].text
    if match := _NEW_MESSAGES.search(prompt):
        return _extract(match[1])
    text = (
        _fold(match[1], match[2])
        if (match := _DIGEST_PROMPT.search(prompt))
        else _converse(messages)
    )
    return json.dumps({"answer": text}, ensure_ascii=False) if as_json else text


def _extract(new_messages: str) -> str:
    facts: dict[str, str] = {}
    for role, content in _spoken(_SPOKEN, new_messages):
        if role == "system":
            continue
        name, said = _speaker(role, content)
        for sentence in sentences(said):
            if is_informative(sentence):
                facts.setdefault(as_statement(name, sentence), role)
    memory = [
        {"id": str(number), "text": text, "attributed_to": role}
        for number, (text, role) in enumerate(facts.items())
    ]
    return json.dumps({"memory": memory}, ensure_ascii=False)


def _fold(previous_digest: str, turns: str) -> str:
    narrative = sentences(previous_digest)
    for role, content in _spoken(_TURN, turns):
        spoken = sentences(content)
        leading = next(filter(is_informative, spoken), spoken[0] if spoken else None)
        if leading is not None:
            statement = as_statement(role.capitalize(), leading)
            narrative.append(statement if statement.endswith("?") else f"{statement}.")
    while len(narrative) > 1 and _count_words(narrative) > DIGEST_WORDS:
        narrative.pop(0)
    return " ".join(" ".join(narrative).split()[-DIGEST_WORDS:])


def _converse(messages: Sequence[Message]) -> str:
    question = next((m.text for m in reversed(messages) if m.role == "user"), "")
    context = "\n".join(m.text for m in messages if m.role in {"system", "developer", "tool"})
    known = dict.fromkeys(_REMEMBERED.findall(context))
    asked = _telling_words(question)
    fitting = sorted(known, key=lambda fact: -len(asked & _telling_words(fact)))
    if any(asked & _telling_words(fact) for fact in known):
        fitting = [fact for fact in fitting if asked & _telling_words(fact)]
    echo = f'You said: "{question}"'
    if not fitting:
        return f"I remember nothing about this. {echo}"
    return f"I remember: {'; '.join(fitting[:_MAX_REMEMBERED])}. {echo}"


def _spoken(marker: re.Pattern[str], text: str) -> Iterator[tuple[str, str]]:
    """Yield (role, content) of each marked passage; lines without a mark continue the last."""
    marks = list(marker.finditer(text))
    ends = [*(mark.start() for mark in marks[1:]), len(text)]
    for mark, end in zip(marks, ends, strict=True):
        yield mark[1], text[mark.end() : end]


def _speaker(role: str, content: str) -> tuple[str, str]:
    """Return who speaks and what is said: `John: I moved` is John's, whatever his role.

    The date that the service puts before each turn is no part of what is said.
    """
    content = _DATED.sub("", content)
    if match := _NAMED_SPEAKER.match(content):
        return match[1], content[match.end() :]
    return role.capitalize(), content


def _telling_words(text: str) -> set[str]:
    return {word for word in words(text) if len(word) >= _MIN_TELLING_LETTERS}


def _count_words(narrative: Sequence[str]) -> int:
    return sum(len(sentence.split()) for sentence in narrative)
