import asyncio
import re

import openai
import pytest
from openai.types.chat import ChatCompletionMessageParam
from pydantic import ValidationError

from kaos_dev.model_server import CHAT_MODEL, Behaviour, ModelServer

QUESTION: list[ChatCompletionMessageParam] = [{"role": "user", "content": "What do I drink?"}]


async def test_scripted_statuses_are_served_in_order_and_then_it_works_again(
    models: ModelServer, client: openai.AsyncOpenAI
):
    models.script(
        Behaviour(endpoint="chat", status=429, retry_after="7"),
        Behaviour(endpoint="chat", status=500, times=2),
    )
    with pytest.raises(openai.RateLimitError) as limited:
        await client.chat.completions.create(model=CHAT_MODEL, messages=QUESTION)
    assert limited.value.response.headers["retry-after"] == "7"
    for _ in range(2):
        with pytest.raises(openai.InternalServerError):
            await client.chat.completions.create(model=CHAT_MODEL, messages=QUESTION)
    await client.chat.completions.create(model=CHAT_MODEL, messages=QUESTION)
    assert [r.status for r in models.requests.all("chat")] == [429, 500, 500, 200]


async def test_a_lying_answer_can_be_scripted_for_some_prompts(
    models: ModelServer, client: openai.AsyncOpenAI
):
    models.script(
        Behaviour(endpoint="chat", times=None, containing="coffee", content="not JSON"),
        Behaviour(endpoint="chat", containing="milk", edited=(re.compile("remember"), "forgot")),
        Behaviour(endpoint="chat", times=None, truncated=True),
        Behaviour(endpoint="embeddings", status=200, body={"object": "list", "data": []}),
    )
    for drink, expected in (
        ("coffee", ("not JSON", "stop")),
        ("milk", ("I forgot nothing", "stop")),
        ("tea", ("I remember no", "length")),
    ):
        answer = await client.chat.completions.create(
            model=CHAT_MODEL, messages=[{"role": "user", "content": drink}]
        )
        choice = answer.choices[0]
        assert (choice.message.content or "").startswith(expected[0])
        assert choice.finish_reason == expected[1]
    with pytest.raises(ValueError, match="No embedding data received"):
        await client.embeddings.create(model="hash-8", input="tea")


async def test_a_hung_call_holds_up_no_other_and_answers_when_released(
    models: ModelServer, client: openai.AsyncOpenAI
):
    models.script(Behaviour(endpoint="embeddings", hang=True))
    hung = asyncio.create_task(client.embeddings.create(model="hash-8", input="tea"))
    await asyncio.to_thread(models.requests.wait_for, lambda seen: len(seen) == 1)
    await client.chat.completions.create(model=CHAT_MODEL, messages=QUESTION)
    assert not hung.done()
    models.release()
    assert len((await hung).data[0].embedding) == 8


async def test_a_dropped_connection_is_a_connection_error(
    models: ModelServer, client: openai.AsyncOpenAI
):
    models.script(Behaviour(endpoint="chat", drop=True))
    with pytest.raises(openai.APIConnectionError):
        await client.chat.completions.create(model=CHAT_MODEL, messages=QUESTION)
    [dropped] = models.requests.all()
    assert dropped.status is None


async def test_a_delay_outlasts_the_patience_of_the_client(
    models: ModelServer, client: openai.AsyncOpenAI
):
    models.script(Behaviour(endpoint="chat", delay_seconds=0.3))
    with pytest.raises(openai.APITimeoutError):
        await client.with_options(timeout=0.05).chat.completions.create(
            model=CHAT_MODEL, messages=QUESTION
        )


async def test_the_record_tells_what_the_models_saw(
    models: ModelServer, client: openai.AsyncOpenAI
):
    await client.chat.completions.create(model=CHAT_MODEL, messages=QUESTION, temperature=0)
    await client.embeddings.create(model="hash-8", input=["tea", "coffee"])
    chat, embedding = models.requests.all()
    assert chat.body == {"model": CHAT_MODEL, "messages": QUESTION, "temperature": 0}
    assert (chat.endpoint, chat.prompt) == ("chat", "What do I drink?")
    assert (embedding.endpoint, embedding.prompt) == ("embeddings", "tea\ncoffee")


def test_a_behaviour_that_cannot_happen_is_refused():
    with pytest.raises(ValidationError, match="need a `status`"):
        Behaviour(endpoint="chat", retry_after="1")
    with pytest.raises(ValidationError, match="are for endpoint `chat`"):
        Behaviour(endpoint="embeddings", content="x")
