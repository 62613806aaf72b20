"""Endpoints: what fails is said without content and without the key."""

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from kaos_memory.engine.models import MAX_CHAT_ANSWER_BYTES, ChatModel
from kaos_memory.engine.protocols import ModelError
from kaos_memory.engine.still_wanted import asking_only_while
from kaos_memory.settings import SettingsError

from .scripted import KEY, Answer, ScriptedModels, completion

SECRET = "Alice's diary"


async def _error(models: ScriptedModels, answer: Answer | None = None) -> ModelError:
    if answer:
        models.chat_answers.append(answer)
    chat = ChatModel(models.model("writer"), seconds=0.3)
    try:
        with pytest.raises(ModelError) as raised:
            await chat.complete(SECRET, SECRET)
    finally:
        await chat.aclose()
    return raised.value


async def test_a_chat_sends_key_model_and_messages_and_no_parameter_that_some_models_refuse(
    models: ScriptedModels,
):
    models.say(completion("fine"))
    chat = ChatModel(models.model("writer"))
    assert await chat.complete("be brief", "hello") == "fine"
    await chat.aclose()
    [request] = models.requests
    assert request.path == "/v1/chat/completions"
    assert request.headers["authorization"] == f"bearer {KEY}"
    assert request.body == {
        "model": "writer",
        "messages": [
            {"role": "system", "content": "be brief"},
            {"role": "user", "content": "hello"},
        ],
    }


async def test_without_a_key_no_authorization_is_sent(models: ScriptedModels):
    models.say(completion("fine"))
    chat = ChatModel(models.model(key=" \n"))
    await chat.complete("a", "b")
    await chat.aclose()
    assert "authorization" not in models.requests[0].headers


async def test_the_line_end_of_a_key_file_is_no_part_of_the_key(models: ScriptedModels):
    models.say(completion("fine"))
    chat = ChatModel(models.model(key=f"{KEY}\n"))
    assert await chat.complete("a", "b") == "fine"
    await chat.aclose()


def test_a_key_that_no_header_can_carry_is_refused_at_once_and_not_shown():
    models = ScriptedModels("http://127.0.0.1:1/v1")
    with pytest.raises(SettingsError, match=r"models\.summarization\.api_key") as raised:
        ChatModel(models.model(key="sk-schlüssel"))
    assert "schl" not in str(raised.value)


async def test_an_environment_of_openrouter_redirects_nothing(
    models: ScriptedModels, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("OPENROUTER_API_KEY", "sk-or")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:1")
    models.say(completion("fine"))
    chat = ChatModel(models.model())
    assert await chat.complete("a", "b") == "fine"
    await chat.aclose()


@pytest.mark.parametrize("status", [400, 401, 404, 422, 429, 500, 503, 302])
async def test_another_status_is_the_reason(models: ScriptedModels, status: int):
    error = await _error(models, Answer(SECRET.encode(), status, {"location": "/elsewhere"}))
    assert str(error) == f"the summarization endpoint answered {status}"
    assert error.retry_after is None
    assert len(models.requests) == 1


@pytest.mark.parametrize(
    ("code", "shown"), [("context_length_exceeded", True), ("alices_diary", False)]
)
async def test_only_known_error_codes_are_named(models: ScriptedModels, code: str, *, shown: bool):
    body = f'{{"error": {{"message": "{SECRET}", "code": "{code}"}}}}'.encode()
    assert (code in str(await _error(models, Answer(body, 400)))) is shown


@pytest.mark.parametrize(
    ("header", "seconds"),
    [("7", 7.0), ("0.5", 0.5), ("999999", 3_600.0), ("-3", None), ("nan", None), ("soon", None)],
)
async def test_retry_after_is_read(models: ScriptedModels, header: str, seconds: float | None):
    error = await _error(models, Answer(status=429, headers={"retry-after": header}))
    assert error.retry_after == seconds


async def test_retry_after_may_be_a_date(models: ScriptedModels):
    until = format_datetime(datetime.now(UTC) + timedelta(seconds=60), usegmt=True)
    error = await _error(models, Answer(status=503, headers={"retry-after": until}))
    assert error.retry_after == pytest.approx(60, abs=2)


@pytest.mark.parametrize("answer", [Answer(hang=True), Answer(drip=True)], ids=["hang", "drip"])
async def test_an_endpoint_that_hangs_is_left_in_time(models: ScriptedModels, answer: Answer):
    error = await _error(models, answer)
    assert str(error) == "the summarization endpoint did not answer within 0.3 s"


async def test_an_answer_that_breaks_off_is_an_error(models: ScriptedModels):
    error = await _error(models, Answer(completion("fine"), cut=True))
    assert str(error) == "the summarization endpoint could not be reached (RemoteProtocolError)"


async def test_an_endpoint_that_is_away_is_an_error():
    error = await _error(ScriptedModels("http://127.0.0.1:1/v1"))
    assert str(error) == "the summarization endpoint could not be reached (ConnectError)"


async def test_an_endless_answer_is_not_read_to_its_end(models: ScriptedModels):
    error = await _error(models, Answer(b" " * (MAX_CHAT_ANSWER_BYTES + 1)))
    assert str(error) == "the summarization endpoint answered with more than 2097152 bytes"


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"no json",
        b"null",
        b"[]",
        b"{}",
        b'{"choices": []}',
        b'{"choices": [null]}',
        b'{"choices": [{"message": null}]}',
        b'{"error": {"message": "quota"}}',
        b"\xff\xfe",
        b"[" * 100_000,
        completion(None),
        completion(""),
        completion(" \n"),
        completion("half", finish_reason="length"),
        completion("", finish_reason="content_filter"),
        b'{"choices": [{"message": {"content": ["list"]}}]}',
    ],
)
async def test_what_is_no_complete_chat_answer_is_an_error(models: ScriptedModels, answer: bytes):
    error = await _error(models, Answer(answer))
    assert str(error).startswith("the summarization endpoint ")


async def test_characters_that_no_storage_takes_are_replaced_both_ways(models: ScriptedModels):
    models.say(completion("a\x00b\ud800c\N{GRINNING FACE}"))
    chat = ChatModel(models.model())
    assert await chat.complete("s\udfff", "u\x00") == "a\ufffdb\ufffdc\N{GRINNING FACE}"
    await chat.aclose()
    assert (models.requests[0].system, models.requests[0].user) == ("s\ufffd", "u\ufffd")


async def test_what_is_no_longer_wanted_is_not_asked(models: ScriptedModels):
    class ErasedError(Exception):
        pass

    async def check() -> None:
        raise ErasedError

    models.say(completion("fine"), completion("fine"))
    chat = ChatModel(models.model("writer"))
    with asking_only_while(check), pytest.raises(ErasedError):
        await chat.complete("be brief", SECRET)
    assert models.requests == []
    assert await chat.complete("be brief", "hello") == "fine"
    await chat.aclose()
