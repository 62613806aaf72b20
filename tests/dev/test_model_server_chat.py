from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import openai
import pytest
from openai.types.chat import ChatCompletionMessageParam

from kaos_dev.model_server import CHAT_MODEL, ModelServer

Post = Callable[[str, Any], Awaitable[tuple[int, dict[str, Any]]]]
QUESTION: list[ChatCompletionMessageParam] = [{"role": "user", "content": "What do I drink?"}]


@pytest.mark.parametrize(
    ("body", "param", "code"),
    [
        ({"messages": None}, "messages", "invalid_type"),
        ({"messages": []}, "messages", "empty_array"),
        ({"messages": [{"role": "robot", "content": "x"}]}, "messages[0].role", "invalid_value"),
        ({"messages": [{"role": "user", "content": 1}]}, "messages[0].content", "invalid_type"),
        ({"messages": [{"role": "user"}]}, "messages.[0].content", None),
        ({"temperature": 3}, "temperature", "integer_above_max_value"),
        ({"max_tokens": 0}, "max_tokens", "integer_below_min_value"),
        ({"max_tokens": 20_000}, "max_tokens", "invalid_value"),
        ({"top_k": 3}, "top_k", "unknown_parameter"),
        ({"response_format": {"type": "json_object"}}, "messages", None),
        (
            {"messages": [{"role": "user", "content": "tea " * 130_000}]},
            "messages",
            "context_length_exceeded",
        ),
    ],
)
async def test_a_wrong_chat_request_is_refused(
    post: Post, body: dict[str, Any], param: str, code: str | None
):
    request = {"model": CHAT_MODEL, "messages": QUESTION, **body}
    status, error = await post("chat/completions", request)
    assert (status, error["param"], error["code"]) == (400, param, code)


async def test_a_body_that_is_no_json_is_refused(models: ModelServer):
    async with httpx.AsyncClient(headers={"authorization": f"Bearer {models.api_key}"}) as client:
        for body in (b"{", b'["tea"]', b'{"model": "gpt-4o-mini", "messages": "\\ud800"}'):
            answer = await client.post(f"{models.url}/chat/completions", content=body)
            assert answer.status_code == 400
            assert "could not parse the JSON body" in answer.json()["error"]["message"]


@pytest.mark.parametrize("name", ["gpt-4o-mini", CHAT_MODEL])
async def test_the_same_question_gets_the_same_answer(client: openai.AsyncOpenAI, name: str):
    first, second = [
        await client.chat.completions.create(model=name, messages=QUESTION) for _ in range(2)
    ]
    assert first.model_copy(update={"created": 0}) == second.model_copy(update={"created": 0})
    assert first.choices[0].message.content == (
        'I remember nothing about this. You said: "What do I drink?"'
    )
    assert first.choices[0].finish_reason == "stop"
    assert first.usage is not None
    assert first.usage.prompt_tokens == 12
    assert first.usage.total_tokens == 12 + first.usage.completion_tokens


async def test_an_answer_uses_the_facts_of_its_context(client: openai.AsyncOpenAI):
    known = "Known facts:\n- User prefers to drink green tea\n- User lives in Oslo\n"
    answer = await client.chat.completions.create(
        model=CHAT_MODEL, messages=[{"role": "system", "content": known}, *QUESTION]
    )
    assert answer.choices[0].message.content == (
        'I remember: User prefers to drink green tea. You said: "What do I drink?"'
    )


async def test_an_answer_that_is_too_long_is_cut(client: openai.AsyncOpenAI):
    answer = await client.chat.completions.create(model=CHAT_MODEL, messages=QUESTION, max_tokens=3)
    assert answer.choices[0].message.content == "I remember nothing"
    assert answer.choices[0].finish_reason == "length"
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 3


async def test_a_stream_carries_the_same_answer_and_its_usage(client: openai.AsyncOpenAI):
    whole = await client.chat.completions.create(model=CHAT_MODEL, messages=QUESTION)
    stream = await client.chat.completions.create(
        model=CHAT_MODEL,
        messages=QUESTION,
        stream=True,
        stream_options={"include_usage": True},
    )
    chunks = [chunk async for chunk in stream]
    choices = [chunk.choices[0] for chunk in chunks if chunk.choices]
    text = "".join(choice.delta.content or "" for choice in choices)
    assert text == whole.choices[0].message.content
    assert choices[-1].finish_reason == "stop"
    assert chunks[-1].usage == whole.usage


async def _fold(client: openai.AsyncOpenAI, digest: str, turns: str) -> str:
    prompt = f"<previous_digest>{digest}</previous_digest>\n<turns>\n{turns}\n</turns>"
    answer = await client.chat.completions.create(
        model=CHAT_MODEL,
        messages=[
            {"role": "system", "content": "Fold the turns into the digest."},
            {"role": "user", "content": prompt},
        ],
    )
    return answer.choices[0].message.content or ""


async def test_a_digest_keeps_the_last_one_and_adds_what_each_turn_leads_with(
    client: openai.AsyncOpenAI,
):
    digest = await _fold(
        client,
        "User said that tea is best.",
        "[4] user: Hi! I moved to Oslo. It is cold.\n[5] assistant: Are you well?",
    )
    assert digest == (
        "User said that tea is best. User said that I moved to Oslo. "
        "Assistant said that Are you well?"
    )


async def test_a_digest_drops_its_oldest_sentences_at_120_words(client: openai.AsyncOpenAI):
    digest = "The very first thing."
    for position in range(40):
        digest = await _fold(client, digest, f"[{position}] user: I counted up to {position} now.")
    assert len(digest.split()) <= 120
    assert "The very first thing" not in digest
    assert digest.endswith("User said that I counted up to 39 now.")
