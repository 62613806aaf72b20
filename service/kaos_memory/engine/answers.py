"""What chat models answer, read strictly: an unusable answer is an error, never "nothing"."""

import json
import re
from typing import Any

from kaos_memory.engine.plain_text import clean
from kaos_memory.engine.protocols import ModelError

MAX_FACTS = 500
MAX_FACT_CHARS = 8_000
"""Prompts ask for a sentence or two. An answer beyond this is an echo of the conversation: it is
refused as a whole, because a part of an echo, stored as a fact, would be recalled for ever."""

_REASONING = re.compile(r"\s*<think>.*?</think>", re.DOTALL | re.IGNORECASE)
_FENCED = re.compile(r"```[a-z0-9]*[ \t]*\n(.*?)```", re.DOTALL | re.IGNORECASE)


def without_reasoning(answer: str) -> str:
    """The answer without the thinking that some models write before it."""
    return (
        _REASONING.sub("", answer, count=1).strip() if _REASONING.match(answer) else answer.strip()
    )


def fact_texts(answer: str) -> list[str]:
    """The different texts of an extraction's answer, in order; an empty list is a valid one.

    The answer is `{"memory": [{"text": "…"}, …]}`, as Mem0's prompt asks; plain strings instead
    of objects say the same and are taken. It may be in one code fence.

    Raises:
        ModelError: it is anything else.
    """
    found = _json_object(answer).get("memory")
    if not isinstance(found, list):
        raise ModelError("the extraction answered without a list 'memory'")
    items: list[Any] = found
    texts = dict.fromkeys(_text(item) for item in items)
    if len(texts) > MAX_FACTS:
        raise ModelError(f"the extraction answered with more than {MAX_FACTS} facts")
    return list(texts)


def _json_object(answer: str) -> dict[str, Any]:
    text = without_reasoning(answer)
    fenced = _FENCED.findall(text)
    try:
        value: Any = json.loads(fenced[0] if len(fenced) == 1 and text[0] != "{" else text)
    except (ValueError, RecursionError):
        raise ModelError("the extraction did not answer with JSON") from None
    if not isinstance(value, dict):
        raise ModelError("the extraction did not answer with a JSON object")
    return value


def _text(item: Any) -> str:
    text: Any = item.get("text") if isinstance(item, dict) else item
    if not isinstance(text, str):
        raise ModelError("the extraction answered with a fact without text")
    text = clean(text).strip()
    if not text:
        raise ModelError("the extraction answered with an empty fact")
    if len(text) > MAX_FACT_CHARS:
        raise ModelError(f"the extraction answered with a fact over {MAX_FACT_CHARS} characters")
    return text
