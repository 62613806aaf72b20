"""What calls of models took: tokens as the endpoint says, else estimated; and how they ended."""

import asyncio
import json

import pytest

from kaos_memory.engine.models import ChatModel, OpenAIEmbedder
from kaos_memory.engine.protocols import ModelError
from kaos_memory.engine.usage import CallOutcome, ModelCall, TokenMeter, tokens_of

from .scripted import DIMS, Answer, ScriptedModels, completion, vectors


def _with_usage(answer: bytes, **usage: object) -> bytes:
    return json.dumps(json.loads(answer) | {"usage": usage}).encode()


async def _chat(models: ScriptedModels, answer: Answer) -> ModelCall:
    models.chat_answers.append(answer)
    calls: list[ModelCall] = []
    chat = ChatModel(models.model("writer"), seconds=0.3, listeners=[calls.append])
    try:
        await chat.complete("be brief", "hello")
    except ModelError:
        assert calls[0].outcome is not CallOutcome.OK
    finally:
        await chat.aclose()
    [call] = calls
    return call


async def test_a_call_is_told_with_its_role_its_time_and_the_tokens_that_the_endpoint_says(
    models: ScriptedModels,
):
    call = await _chat(models, Answer(_with_usage(completion("fine"), total_tokens=321)))
    assert (call.role, call.outcome, call.tokens) == ("summarization", CallOutcome.OK, 321)
    assert 0 < call.seconds < 0.3


async def test_tokens_that_nobody_says_are_a_quarter_of_the_bytes(models: ScriptedModels):
    answer = completion("fine")
    call = await _chat(models, Answer(answer))
    sent = len(json.dumps(models.requests[0].body, separators=(",", ":")))
    assert call.tokens == (sent + len(answer)) // 4


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        (Answer(b"prose"), CallOutcome.UNUSABLE),
        (Answer(completion(None)), CallOutcome.UNUSABLE),
        (Answer(status=400), CallOutcome.REFUSED),
        (Answer(status=429), CallOutcome.UNAVAILABLE),
        (Answer(cut=True), CallOutcome.UNAVAILABLE),
        (Answer(hang=True), CallOutcome.LATE),
    ],
)
async def test_a_failed_call_says_how_it_ended(
    models: ScriptedModels, answer: Answer, outcome: CallOutcome
):
    assert (await _chat(models, answer)).outcome is outcome


async def test_an_answer_that_cannot_be_used_was_paid_for(models: ScriptedModels):
    answer = _with_usage(completion("", finish_reason="length"), total_tokens=9_000)
    call = await _chat(models, Answer(answer))
    assert (call.outcome, call.tokens) == (CallOutcome.UNUSABLE, 9_000)


async def test_a_call_that_nobody_waits_for_any_more_is_cancelled(models: ScriptedModels):
    models.hold.clear()
    calls: list[ModelCall] = []
    chat = ChatModel(models.model("writer"), listeners=[calls.append])
    asked = asyncio.create_task(chat.complete("a", "b"))
    await models.asked.wait()
    asked.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asked
    await chat.aclose()
    models.hold.set()
    assert [(call.outcome, call.tokens) for call in calls] == [(CallOutcome.CANCELLED, 0)]


async def test_vectors_are_not_taken_for_tokens(models: ScriptedModels):
    texts = ["tea and rain"]
    models.embedding_answers = [
        Answer(vectors(texts)),
        Answer(_with_usage(vectors(texts), prompt_tokens=3, total_tokens=3)),
    ]
    meter = TokenMeter()
    embedder = OpenAIEmbedder(models.model("embedder"), DIMS, listeners=[meter.heard])
    await embedder.embed(texts)
    assert meter.take() == len(json.dumps(models.requests[0].body, separators=(",", ":"))) // 4
    await embedder.embed(texts)
    await embedder.aclose()
    assert meter.take() == 3
    assert meter.take() == 0


@pytest.mark.parametrize(
    "usage",
    [
        b'{"usage": null}',
        b'{"usage": {"total_tokens": "many"}}',
        b'{"usage": {"total_tokens": true}}',
        b'{"usage": {"total_tokens": -5}}',
        b'{"usage": {"total_tokens": 1e3}}',
        b'{"usage": {"total_tokens": 99999999999}}',
        b'{"usage": {"total_tok',
        b'{"usage": ' + b'{"a":' * 5_000,
        json.dumps({"content": '"usage": {"total_tokens": 7}'}).encode(),
    ],
)
def test_usage_that_is_none_is_not_believed(usage: bytes):
    assert tokens_of(usage, text_bytes=40) == 10


def test_usage_is_found_before_and_after_the_rest_and_with_details_in_it():
    details = b'"usage" : {"prompt_tokens_details": {"cached": 1}, "total_tokens": 12}'
    assert tokens_of(b"{" + details + b', "data": [' + b"0.1," * 5_000, text_bytes=4) == 12
    assert tokens_of(b'{"data": [' + b"0.1," * 5_000 + b"0]," + details + b"}", text_bytes=4) == 12
