"""Reranking: each document exactly once in the order of the scores, or an error."""

import json
from collections.abc import AsyncIterator

import pytest

from kaos_dev.model_server import EMBEDDING_MODEL, RERANK_MODEL, ModelServer
from kaos_memory.engine.protocols import ModelError, ModelUnavailable, Reranker
from kaos_memory.engine.reranker import MAX_DOCUMENT_BYTES, MAX_DOCUMENTS, EndpointReranker
from kaos_memory.settings import Model

from .scripted import KEY, Answer, ScriptedModels


def _results(*scored: tuple[object, object]) -> Answer:
    rows = [{"index": index, "relevance_score": score} for index, score in scored]
    return Answer(json.dumps({"model": "m", "results": rows, "usage": {}}).encode())


@pytest.fixture
async def reranker(models: ScriptedModels) -> AsyncIterator[EndpointReranker]:
    made = EndpointReranker(models.model("judge"), seconds=0.5)
    yield made
    await made.aclose()


async def test_documents_come_in_the_order_of_their_scores(
    models: ScriptedModels, reranker: EndpointReranker
):
    models.rerank_answers = [_results((0, 0.1), (2, 3), (1, -7.5))]
    by_protocol: Reranker = reranker
    assert await by_protocol.rerank("who?", ["a", "b", "c"]) == [2, 0, 1]
    [request] = models.reranks
    assert request.path == "/v1/rerank"
    assert request.headers["authorization"] == f"bearer {KEY}"
    assert request.body == {
        "model": "judge",
        "query": "who?",
        "documents": ["a", "b", "c"],
        "top_n": 3,
    }


async def test_equal_scores_and_what_is_left_out_keep_the_given_order(
    models: ScriptedModels, reranker: EndpointReranker
):
    models.rerank_answers = [_results((4, 0.5), (1, 0.5), (3, 0.9))]
    assert await reranker.rerank("who?", ["a", "b", "c", "d", "e"]) == [3, 1, 4, 0, 2]


async def test_blank_documents_are_not_sent_and_come_last(
    models: ScriptedModels, reranker: EndpointReranker
):
    models.rerank_answers = [_results((0, 0.1), (1, 0.2))]
    assert await reranker.rerank("who?", ["", "a", " \n", "b"]) == [3, 1, 0, 2]
    assert models.reranks[0].body["documents"] == ["a", "b"]


@pytest.mark.parametrize(
    ("query", "documents"), [("who?", []), ("who?", ["a"]), ("who?", ["a", ""]), (" ", ["a", "b"])]
)
async def test_nothing_is_asked_where_nothing_can_be_ordered(
    models: ScriptedModels, reranker: EndpointReranker, query: str, documents: list[str]
):
    assert await reranker.rerank(query, documents) == list(range(len(documents)))
    assert models.requests == []


async def test_a_call_is_bounded_in_number_and_size(
    models: ScriptedModels, reranker: EndpointReranker
):
    last = MAX_DOCUMENTS - 1
    models.rerank_answers = [_results((last, 1), *((index, 0) for index in range(last)))]
    texts = ["\N{GRINNING FACE}" * 1_000 + "\ud800"] * (MAX_DOCUMENTS + 2)
    expected = [last, *range(last), MAX_DOCUMENTS, MAX_DOCUMENTS + 1]
    assert await reranker.rerank("q" * 16_000, texts) == expected
    body = models.reranks[0].body
    assert len(body["query"]) == MAX_DOCUMENT_BYTES
    assert {len(text.encode()) for text in body["documents"]} == {MAX_DOCUMENT_BYTES}
    assert (len(body["documents"]), body["top_n"]) == (MAX_DOCUMENTS, MAX_DOCUMENTS)


async def test_documents_that_are_sent_back_are_not_too_long_an_answer(
    models: ScriptedModels, reranker: EndpointReranker
):
    documents = ["\N{GRINNING FACE}" * 1_000] * MAX_DOCUMENTS
    rows = [
        {"index": index, "relevance_score": index, "document": {"text": text}}
        for index, text in enumerate(documents)
    ]
    models.rerank_answers = [Answer(json.dumps({"results": rows}).encode())]
    assert await reranker.rerank("who?", documents) == list(reversed(range(MAX_DOCUMENTS)))


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (_results((0, 1), (2, 1)), "answered with wrong indices for 2 documents"),
        (_results((-1, 1), (0, 1)), "answered with wrong indices for 2 documents"),
        (_results((0, 1), (0, 2)), "answered with wrong indices for 2 documents"),
        (_results((0, 1), (0, 2), (1, 1)), "answered with wrong indices for 2 documents"),
        (_results(), "answered without a score for 2 documents"),
        (_results(("0", 1), (1, 1)), "did not answer with scores of documents"),
        (_results((0.0, 1), (1, 1)), "did not answer with scores of documents"),
        (_results((False, 1), (True, 1)), "did not answer with scores of documents"),
        (_results((0, True), (1, 1)), "did not answer with scores of documents"),
        (_results((0, None), (1, 1)), "did not answer with scores of documents"),
        (_results((0, "0.5"), (1, 1)), "did not answer with scores of documents"),
        (_results((0, float("nan")), (1, 1)), "did not answer with scores of documents"),
        (_results((0, float("inf")), (1, 1)), "did not answer with scores of documents"),
        (_results((0, [1]), (1, 1)), "did not answer with scores of documents"),
        (Answer(b'{"results": [{"index": 0, "relevance_score": 1e999}]}'), "did not answer"),
        (Answer(b'{"results": {"index": 0, "relevance_score": 1}}'), "did not answer"),
        (Answer(b'{"results": [0.5, 0.6]}'), "did not answer with scores of documents"),
        (Answer(b'{"results": [{"index": 0}]}'), "did not answer with scores of documents"),
        (Answer(b'{"results": null}'), "did not answer with scores of documents"),
        (Answer(b'{"data": []}'), "did not answer with scores of documents"),
        (Answer(b"[]"), "did not answer with scores of documents"),
        (Answer(b"<html>"), "did not answer with scores of documents"),
        (Answer(b" " * 1_300_000), "answered with more than"),
    ],
)
async def test_a_wrong_answer_is_an_error(
    models: ScriptedModels, reranker: EndpointReranker, answer: Answer, reason: str
):
    models.rerank_answers = [answer]
    with pytest.raises(ModelError, match=f"^the rerank endpoint {reason}"):
        await reranker.rerank("who?", ["a", "b"])


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (Answer(status=429, headers={"retry-after": "7"}), "answered 429"),
        (Answer(hang=True), "did not answer within 0.5 s"),
        (Answer(drip=True), "did not answer within 0.5 s"),
        (Answer(b'{"results": []}', cut=True), "could not be reached"),
    ],
)
async def test_an_endpoint_that_does_not_work_is_unavailable(
    models: ScriptedModels, reranker: EndpointReranker, answer: Answer, reason: str
):
    models.rerank_answers = [answer]
    with pytest.raises(ModelUnavailable, match=f"^the rerank endpoint {reason}"):
        await reranker.rerank("who?", ["a", "b"])


@pytest.mark.parametrize("name", [RERANK_MODEL, EMBEDDING_MODEL])
async def test_it_works_with_the_model_server(name: str):
    documents = ["Bob rides a bicycle.", "", "\ud800\x00", "Alice drinks green tea." * 500]
    with ModelServer() as server:
        model = Model.model_validate(
            {"base_url": server.url, "model": name, "api_key": server.api_key}
        )
        reranker = EndpointReranker(model)
        assert await reranker.rerank("Who drinks tea?", documents) == [3, 0, 2, 1]
        await reranker.aclose()
