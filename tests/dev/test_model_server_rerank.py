from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import httpx
import pytest

from kaos_dev.model_server import (
    CHAT_MODEL,
    EMBEDDING_MODEL,
    RERANK_MODEL,
    Behaviour,
    ModelServer,
)

Post = Callable[[str, Any], Awaitable[tuple[int, dict[str, Any]]]]
DOCUMENTS = ["Bob rides a bicycle.", "Alice drinks green tea.", "Alice sleeps."]


@pytest.fixture
async def http(models: ModelServer) -> AsyncIterator[httpx.AsyncClient]:
    headers = {"authorization": f"Bearer {models.api_key}"}
    async with httpx.AsyncClient(base_url=models.url, headers=headers) as client:
        yield client


async def _ranked(http: httpx.AsyncClient, **fields: object) -> list[dict[str, Any]]:
    body = {"model": RERANK_MODEL, "query": "What does Alice drink?", "documents": DOCUMENTS}
    answer = await http.post("rerank", json=body | fields)
    assert answer.status_code == 200
    assert answer.json()["model"] == fields.get("model", RERANK_MODEL)
    return answer.json()["results"]


async def test_documents_with_more_of_the_words_that_are_asked_for_come_first(
    http: httpx.AsyncClient,
):
    found = await _ranked(http, query="Alice drinks what tea, Alice?")
    assert found == [
        {"index": 1, "relevance_score": 0.75},
        {"index": 2, "relevance_score": 0.25},
        {"index": 0, "relevance_score": 0.0},
    ]


async def test_only_the_best_are_given_and_with_their_text_where_that_is_asked_for(
    http: httpx.AsyncClient,
):
    [best] = await _ranked(http, query="bicycle", top_n=1, return_documents=True)
    assert best == {"index": 0, "relevance_score": 1.0, "document": {"text": DOCUMENTS[0]}}
    assert len(await _ranked(http, top_n=9)) == 3


async def test_the_name_of_an_embedding_model_reranks_too(http: httpx.AsyncClient):
    assert await _ranked(http, model=EMBEDDING_MODEL) == await _ranked(http)
    names = [model["id"] for model in (await http.get("models")).json()["data"]]
    assert RERANK_MODEL in names
    assert (await http.get(f"models/{RERANK_MODEL}")).status_code == 200


@pytest.mark.parametrize(
    ("fields", "status", "message"),
    [
        ({"query": ""}, 400, "Invalid 'query': must not be empty."),
        ({"query": None}, 400, "Invalid type for 'query'"),
        ({"documents": []}, 400, "Invalid 'documents': empty array."),
        ({"documents": ["tea", " "]}, 400, "Invalid 'documents': none may be empty."),
        ({"documents": ["tea", 1]}, 400, "Invalid type for 'documents[1]'"),
        ({"documents": ["tea"] * 1001}, 400, "maximum length 1000"),
        ({"top_n": 0}, 400, "Invalid 'top_n': integer below minimum value."),
        ({"top_n": "3"}, 400, "Invalid type for 'top_n'"),
        ({"dims": 8}, 400, "Unknown parameter: 'dims'."),
        ({"model": CHAT_MODEL}, 400, "does not rerank"),
        ({"model": "gpt-9"}, 404, "does not exist"),
    ],
)
async def test_a_wrong_rerank_request_is_refused(
    post: Post, fields: dict[str, Any], status: int, message: str
):
    body = {"model": RERANK_MODEL, "query": "tea?", "documents": ["tea"]}
    found, error = await post("rerank", body | fields)
    assert found == status
    assert message in error["message"]


async def test_a_key_is_needed(models: ModelServer):
    async with httpx.AsyncClient(base_url=models.url) as nobody:
        assert (await nobody.post("rerank", json={})).status_code == 401


async def test_faults_are_scripted_and_requests_recorded(
    models: ModelServer, http: httpx.AsyncClient
):
    models.script(
        Behaviour(endpoint="rerank", containing="bicycle", status=503),
        Behaviour(endpoint="rerank", containing="coffee", status=500),
    )
    body = {"model": RERANK_MODEL, "query": "tea?", "documents": DOCUMENTS}
    assert [(await http.post("rerank", json=body)).status_code for _ in "12"] == [503, 200]
    first, _ = models.requests.all("rerank")
    assert first.prompt == "\n".join(["tea?", *DOCUMENTS])
    assert first.body == body
