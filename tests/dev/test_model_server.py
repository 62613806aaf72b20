import asyncio
import json
import math
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import openai
import pytest
from kaos_dev.model_server import CHAT_MODEL, EMBEDDING_MODEL, Behaviour, ModelServer
from openai.types.chat import ChatCompletionMessageParam
from pydantic import ValidationError

QUESTION: list[ChatCompletionMessageParam] = [{"role": "user", "content": "What do I drink?"}]


@pytest.fixture
async def client(models: ModelServer) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(
        base_url=models.url, api_key=models.api_key, max_retries=0
    ) as client:
        yield client


async def _vectors(client: openai.AsyncOpenAI, model: str, *texts: str) -> list[list[float]]:
    answer = await client.embeddings.create(model=model, input=list(texts))
    return [item.embedding for item in answer.data]


def _cosine(a: list[float], b: list[float]) -> float:
    return sum(x * y for x, y in zip(a, b, strict=True))


async def _post(models: ModelServer, path: str, body: Any) -> tuple[int, dict[str, Any]]:
    async with httpx.AsyncClient(headers={"authorization": f"Bearer {models.api_key}"}) as client:
        answer = await client.post(f"{models.url}/{path}", json=body)
    return answer.status_code, answer.json()["error"]


# Embeddings


async def test_similar_meaning_has_a_similar_vector(client: openai.AsyncOpenAI):
    tea, also_tea, server = await _vectors(
        client, EMBEDDING_MODEL, "I like tea", "I love drinking green tea", "The server crashed"
    )
    assert len(tea) == 384
    assert math.isclose(_cosine(tea, tea), 1, abs_tol=1e-5)
    assert _cosine(tea, also_tea) > 0.7
    assert _cosine(tea, server) < 0.2


async def test_a_vector_does_not_depend_on_its_neighbours_or_the_encoding(
    client: openai.AsyncOpenAI,
):
    for model in (EMBEDDING_MODEL, "text-embedding-3-small"):
        [alone] = await _vectors(client, model, "tea")
        [_, beside] = await _vectors(client, model, "a much longer text about coffee", "tea")
        as_floats = await client.embeddings.create(
            model=model, input="tea", encoding_format="float"
        )
        assert alone == beside
        assert as_floats.data[0].embedding == pytest.approx(alone, abs=1e-7)


async def test_only_the_first_256_tokens_of_a_text_count_for_the_real_model(
    client: openai.AsyncOpenAI,
):
    long, longer = await _vectors(client, EMBEDDING_MODEL, "tea " * 300, "tea " * 600)
    assert long == longer


@pytest.mark.parametrize(
    ("model", "dimensions"),
    [("hash-64", 64), ("hash-1536", 1536), ("text-embedding-3-large", 3072), ("all-minilm", 384)],
)
async def test_the_model_decides_the_dimensions(
    client: openai.AsyncOpenAI, model: str, dimensions: int
):
    one, other = await _vectors(client, model, "tea is hot", "coffee is cold")
    assert len(one) == dimensions
    assert math.isclose(_cosine(one, one), 1, abs_tol=1e-5)
    assert one != other


async def test_fewer_dimensions_are_a_normalised_prefix(client: openai.AsyncOpenAI):
    [whole] = await _vectors(client, "text-embedding-3-small", "tea")
    answer = await client.embeddings.create(
        model="text-embedding-3-small", input="tea", dimensions=256
    )
    short = answer.data[0].embedding
    norm = math.sqrt(sum(x * x for x in whole[:256]))
    assert short == pytest.approx([x / norm for x in whole[:256]], abs=1e-6)


async def test_embedding_usage_counts_tokens(client: openai.AsyncOpenAI):
    hashed = await client.embeddings.create(model="hash-8", input=["hello world", "hello"])
    assert (hashed.usage.prompt_tokens, hashed.usage.total_tokens) == (3, 3)
    real = await client.embeddings.create(model=EMBEDDING_MODEL, input="hello world")
    assert real.usage.prompt_tokens == 4  # with the two special tokens of BERT


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"input": ""}, "'$.input' is invalid"),
        ({"input": []}, "'$.input' is invalid"),
        ({"input": ["tea", ""]}, "'$.input' is invalid"),
        ({"input": [1, 2]}, "'$.input' is invalid"),
        ({}, "Missing required parameter: 'input'."),
        ({"input": "tea", "dimensions": "8"}, "Invalid type for 'dimensions'"),
        ({"input": "tea", "dimensions": 9}, "does not support specifying dimensions"),
        ({"input": "tea", "encoding_format": "hex"}, "Invalid value: 'hex'"),
        ({"input": "tea", "dims": 8}, "Unknown parameter: 'dims'."),
        ({"input": ["tea"] * 2049}, "maximum length 2048"),
        ({"input": "tea " * 9000}, "maximum context length is 8192 tokens"),
    ],
)
async def test_a_wrong_embedding_request_is_refused(
    models: ModelServer, body: dict[str, Any], message: str
):
    status, error = await _post(models, "embeddings", {"model": "hash-8", **body})
    assert status == 400
    assert message in error["message"]
    assert error["type"] == "invalid_request_error"


# Chats


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
    models: ModelServer, body: dict[str, Any], param: str, code: str | None
):
    request = {"model": CHAT_MODEL, "messages": QUESTION, **body}
    status, error = await _post(models, "chat/completions", request)
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


# Identity, catalogue


async def test_a_missing_and_a_wrong_key_are_refused(models: ModelServer):
    for header in ({}, {"authorization": "Bearer wrong"}, {"authorization": "Basic wrong"}):
        async with httpx.AsyncClient(headers=header) as client:
            for path in ("models", "models/gpt-4o-mini"):
                assert (await client.get(f"{models.url}/{path}")).status_code == 401
            answer = await client.post(f"{models.url}/embeddings", json={})
            assert answer.status_code == 401
            assert answer.json()["error"]["type"] == "invalid_request_error"


async def test_unknown_models_are_not_found(client: openai.AsyncOpenAI):
    with pytest.raises(openai.NotFoundError) as chat:
        await client.chat.completions.create(model="gpt-9", messages=QUESTION)
    assert chat.value.code == "model_not_found"
    for model in ("gpt-9", "hash-0", "hash-99999"):
        with pytest.raises(openai.NotFoundError):
            await client.embeddings.create(model=model, input="tea")
    with pytest.raises(openai.NotFoundError, match="not a chat model"):
        await client.chat.completions.create(model=EMBEDDING_MODEL, messages=QUESTION)
    with pytest.raises(openai.PermissionDeniedError):
        await client.embeddings.create(model=CHAT_MODEL, input="tea")


async def test_the_catalogue_names_the_models(client: openai.AsyncOpenAI):
    names = [model.id async for model in client.models.list()]
    assert {CHAT_MODEL, EMBEDDING_MODEL, "gpt-4o-mini", "text-embedding-3-small"} <= set(names)
    assert (await client.models.retrieve("hash-77")).id == "hash-77"


# Faults


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
        Behaviour(endpoint="chat", times=None, truncated=True),
        Behaviour(endpoint="embeddings", status=200, body={"object": "list", "data": []}),
    )
    for drink, expected in (("coffee", ("not JSON", "stop")), ("tea", ("I remember no", "length"))):
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
    hung = asyncio.create_task(_vectors(client, "hash-8", "tea"))
    await asyncio.to_thread(models.requests.wait_for, lambda seen: len(seen) == 1)
    await client.chat.completions.create(model=CHAT_MODEL, messages=QUESTION)
    assert not hung.done()
    models.release()
    [vector] = await hung
    assert len(vector) == 8


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


# As a process


def test_the_command_prints_its_address_and_takes_its_script_over_http():
    command = [sys.executable, "-m", "kaos_dev.model_server", "--scriptable"]
    environment = {**os.environ, "MODEL_SERVER_API_KEY": "sk-test"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as process:
        assert process.stdout is not None
        url = json.loads(process.stdout.readline())["url"]
        root = url.removesuffix("/v1")
        assert httpx.get(f"{root}/healthz").json() == {"status": "ok"}
        assert httpx.get(f"{root}/_requests").status_code == 401
        with httpx.Client(base_url=root, headers={"authorization": "Bearer sk-test"}) as client:
            fault = {"endpoint": "chat", "status": 503}
            assert client.post("/_script", json=[fault]).status_code == 204
            assert client.post("/_script", json=[{"endpoint": "tea"}]).status_code == 422
            chat = {"model": "gpt-4o-mini", "messages": QUESTION}
            statuses = [client.post("/v1/chat/completions", json=chat).status_code for _ in "12"]
            assert statuses == [503, 200]
            assert [seen["status"] for seen in client.get("/_requests").json()] == [503, 200]
            assert client.post("/_release").status_code == 204
        process.terminate()
        assert process.wait(10) in {0, -15}


async def test_without_permission_there_is_no_scripting_over_http(models: ModelServer):
    root = models.url.removesuffix("/v1")
    async with httpx.AsyncClient(headers={"authorization": f"Bearer {models.api_key}"}) as client:
        assert (await client.get(f"{root}/_requests")).status_code == 404
        assert (await client.post(f"{root}/_script", json=[])).status_code == 404


def test_stopping_releases_what_hangs_and_frees_the_port():
    server = ModelServer()
    server.start()
    server.script(Behaviour(endpoint="embeddings", hang=True))
    with ThreadPoolExecutor(1) as threads:
        hung = threads.submit(
            httpx.post,
            f"{server.url}/embeddings",
            headers={"authorization": f"Bearer {server.api_key}"},
            json={"model": "hash-8", "input": "tea"},
        )
        server.requests.wait_for(lambda seen: len(seen) == 1)
        server.stop()
        assert hung.result().status_code == 200
    with pytest.raises(httpx.ConnectError):
        httpx.get(server.url)
