"""The extraction of real Mem0, with all it sends, against the model server."""

import importlib
import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kaos_dev.model_server import CHAT_MODEL, EMBEDDING_MODEL, Behaviour, ModelServer

SCOPE = {"user_id": "alice"}


@pytest.fixture(scope="session")
def mem0_module(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with pytest.MonkeyPatch.context() as patch:
        # Mem0 reads both when it is imported.
        patch.setenv("MEM0_TELEMETRY", "False")
        patch.setenv("MEM0_DIR", str(tmp_path_factory.mktemp("mem0")))
        yield importlib.import_module("mem0")


@pytest.fixture
def memory(mem0_module: Any, models: ModelServer, tmp_path: Path) -> Iterator[Any]:
    endpoint = {"api_key": models.api_key, "openai_base_url": models.url}
    memory = mem0_module.Memory.from_config(
        {
            "llm": {"provider": "openai", "config": {"model": CHAT_MODEL, **endpoint}},
            "embedder": {"provider": "openai", "config": {"model": EMBEDDING_MODEL, **endpoint}},
            "vector_store": {
                "provider": "qdrant",
                "config": {
                    "path": str(tmp_path / "qdrant"),
                    "collection_name": f"facts-{uuid.uuid4()}",
                    "embedding_model_dims": 384,
                },
            },
            "history_db_path": ":memory:",
        }
    )
    yield memory
    memory.vector_store.client.close()
    memory.close()


def _add(memory: Any, *turns: tuple[str, str]) -> list[str]:
    messages = [{"role": role, "content": content} for role, content in turns]
    return [result["memory"] for result in memory.add(messages, **SCOPE)["results"]]


def test_each_informative_sentence_becomes_a_fact(memory: Any, models: ModelServer):
    facts = _add(
        memory,
        ("user", "Hello! I like green tea. My sister Ada lives in Oslo.\nDo you know her?"),
        ("assistant", "Great. I booked the flight to Oslo for May 3."),
        ("user", "Thank you so much! Bob: I am allergic to nuts."),
        ("user", "Bob: I play the cello."),
        ("user", "我喜欢喝绿茶。你呢？"),  # noqa: RUF001
    )
    assert facts == [
        "User said that I like green tea",
        "User said that My sister Ada lives in Oslo",
        "Assistant said that I booked the flight to Oslo for May 3",
        "User said that Bob: I am allergic to nuts",
        "Bob said that I play the cello",
        "User said that 我喜欢喝绿茶",
    ]
    [chat] = models.requests.all("chat")
    assert chat.status == 200
    assert chat.body["response_format"] == {"type": "json_object"}


def test_facts_come_from_the_new_messages_only(memory: Any, models: ModelServer):
    assert _add(memory, ("user", "I like green tea.")) == ["User said that I like green tea"]
    assert _add(memory, ("user", "I moved to Oslo.")) == ["User said that I moved to Oslo"]
    prompt = models.requests.all("chat")[-1].prompt
    assert "user: I like green tea." in prompt  # Mem0 sent the old message again
    assert '"text": "User said that I like green tea"' in prompt  # and what is remembered


def test_headings_inside_a_message_are_text(memory: Any):
    diary = "I wrote ## Observation Date\n2020-01-01 into my diary.\n\n## New Messages\nI like tea."
    assert _add(memory, ("user", diary)) == [
        "User said that I wrote ## Observation Date",
        "User said that 2020-01-01 into my diary",
        "User said that I like tea",
    ]


def test_smalltalk_yields_nothing(memory: Any):
    assert _add(memory, ("user", "Hi there!"), ("assistant", "Hello, how are you?")) == []


def test_what_was_extracted_is_found_by_its_meaning(memory: Any):
    _add(memory, ("user", "I like green tea. The office rents a server in Frankfurt."))
    found = memory.search("What does she drink?", filters=SCOPE, top_k=1)["results"]
    assert [fact["memory"] for fact in found] == ["User said that I like green tea"]


def test_an_answer_that_is_cut_is_lost_by_mem0_without_a_word(memory: Any, models: ModelServer):
    models.script(Behaviour(endpoint="chat", truncated=True))
    assert _add(memory, ("user", "I like green tea.")) == []
    assert [request.status for request in models.requests.all("chat")] == [200]


def test_the_answer_has_mem0s_shape(models: ModelServer, memory: Any):
    _add(memory, ("user", "I like green tea."), ("assistant", "I noted that down."))
    prompt = models.requests.all("chat")[0].body
    answer = memory.llm.generate_response(messages=prompt["messages"])
    assert json.loads(answer) == {
        "memory": [
            {"id": "0", "text": "User said that I like green tea", "attributed_to": "user"},
            {
                "id": "1",
                "text": "Assistant said that I noted that down",
                "attributed_to": "assistant",
            },
        ]
    }
