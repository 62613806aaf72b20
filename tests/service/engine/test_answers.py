"""Reading an extraction's answer: facts, no facts, or an error; never a guess."""

import json

import pytest

from kaos_memory.engine.answers import MAX_FACT_CHARS, MAX_FACTS, fact_texts
from kaos_memory.engine.protocols import ModelError

GOOD = '{"memory": [{"id": "0", "text": "Alice likes tea", "attributed_to": "user"}]}'


@pytest.mark.parametrize(
    "answer",
    [
        GOOD,
        f"\n {GOOD} \n",
        f"```json\n{GOOD}\n```",
        f"```\n{GOOD}\n```",
        f"Here you are:\n```json\n{GOOD}\n```\nAnything else?",
        f"<think>tea{{}}\n```</think>\n{GOOD}",
        '{"memory": ["Alice likes tea"]}',
        '{"memory": ["Alice likes tea", {"text": " Alice likes tea "}], "note": 1}',
    ],
)
def test_facts_are_read(answer: str):
    assert fact_texts(answer) == ["Alice likes tea"]


@pytest.mark.parametrize("answer", ['{"memory": []}', '```json\n{"memory": []}\n```'])
def test_no_facts_are_an_answer_too(answer: str):
    assert fact_texts(answer) == []


@pytest.mark.parametrize(
    "answer",
    [
        "Alice likes tea.",
        f"Sure! {GOOD}",
        f"{GOOD} That is all.",
        GOOD[:-2],
        f"```json\n{GOOD[:-9]}",
        f"```\n{GOOD}\n```\n```\n{GOOD}\n```",
        "null",
        "[]",
        '["Alice likes tea"]',
        "{}",
        '{"memory": null}',
        '{"memory": {}}',
        '{"memory": "Alice likes tea"}',
        '{"memories": []}',
        '{"memory": [null]}',
        '{"memory": [1]}',
        '{"memory": [{"text": null}]}',
        '{"memory": [{"fact": "Alice likes tea"}]}',
        '{"memory": [{"text": " "}]}',
        '{"memory": [""]}',
        "<think>nothing else</think>",
        "[" * 100_000,
        json.dumps({"memory": ["x" * (MAX_FACT_CHARS + 1)]}),
        json.dumps({"memory": [f"fact {number}" for number in range(MAX_FACTS + 1)]}),
    ],
    ids=lambda answer: answer[:30],
)
def test_anything_else_is_an_error_that_quotes_nothing(answer: str):
    with pytest.raises(ModelError) as raised:
        fact_texts(answer)
    assert "Alice" not in str(raised.value)


def test_characters_that_no_storage_takes_are_replaced():
    assert fact_texts(r'{"memory": ["a\ud800b\u0000c\ud83d\ude00"]}') == [
        "a\ufffdb\ufffdc\U0001f600"
    ]
