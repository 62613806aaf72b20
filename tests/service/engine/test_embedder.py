"""Embeddings: the right count, dimensions and numbers, or an error; queries cached."""

import asyncio
import gc
import json
import math
from typing import Any

import pytest

from kaos_memory.engine.cached_embedder import CachedEmbedder
from kaos_memory.engine.circuit_breaker import CircuitBreaker
from kaos_memory.engine.models import MAX_EMBEDDED_BYTES, OpenAIEmbedder
from kaos_memory.engine.protocols import ModelError, ModelUnavailable

from .scripted import DIMS, Answer, ScriptedModels, vector_of, vectors


def _unit(text: str) -> list[float]:
    length = math.hypot(*vector_of(text))
    return [number / length for number in vector_of(text)]


def _rows(*embeddings: object) -> bytes:
    rows = [{"index": index, "embedding": value} for index, value in enumerate(embeddings)]
    return json.dumps({"data": rows}).encode()


async def test_vectors_come_in_the_order_of_the_texts_with_length_1(
    models: ScriptedModels, embedder: OpenAIEmbedder
):
    found = await embedder.embed(["one", "two", "three"])
    assert found == [pytest.approx(_unit(text)) for text in ("one", "two", "three")]
    assert [request.body for request in models.embeddings] == [
        {"model": "embedder", "input": ["one", "two", "three"]}
    ]


async def test_no_texts_ask_nothing(models: ScriptedModels, embedder: OpenAIEmbedder):
    assert await embedder.embed([]) == []
    assert models.requests == []


async def test_many_texts_are_asked_for_in_batches(
    models: ScriptedModels, embedder: OpenAIEmbedder
):
    texts = [f"text {number}" for number in range(130)]
    assert await embedder.embed(texts) == [pytest.approx(_unit(text)) for text in texts]
    assert [len(request.body["input"]) for request in models.embeddings] == [64, 64, 2]


async def test_a_batch_stays_below_the_tokens_of_one_call(
    models: ScriptedModels, embedder: OpenAIEmbedder
):
    await embedder.embed(["x" * 8_000] * 40)
    assert [len(request.body["input"]) for request in models.embeddings] == [32, 8]


async def test_of_a_long_text_the_beginning_is_embedded(
    models: ScriptedModels, embedder: OpenAIEmbedder
):
    await embedder.embed(["a" + "\N{GRINNING FACE}" * 50_000])
    [sent] = models.embeddings[0].body["input"]
    assert len(sent.encode()) == MAX_EMBEDDED_BYTES - 3  # no emoji is cut in two


async def test_broken_characters_are_replaced_on_the_way_out(
    models: ScriptedModels, embedder: OpenAIEmbedder
):
    await embedder.embed(["\ud800\x00"])
    assert models.embeddings[0].body["input"] == ["\ufffd\ufffd"]


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (vectors(["only one"]), "answered with 1 vectors"),
        (vectors(["a", "b", "c"]), "answered with 3 vectors"),
        (b'{"data": [{"index": 0, "embedding": []}, {"index": 0, "embedding": []}]}', "indices"),
        (_rows([1.0] * DIMS, [math.nan] * DIMS), "did not answer with embeddings"),
        (_rows([1.0] * DIMS, [1e308] * DIMS), "no finite length"),
        (_rows([1.0] * DIMS, [0.0] * DIMS), "no finite length"),
        (_rows([1.0] * DIMS, [None] * DIMS), "did not answer with embeddings"),
        (_rows([1.0] * DIMS, ["1"] * DIMS), "did not answer with embeddings"),
        (_rows([1.0] * DIMS, "AAAAAA=="), "did not answer with embeddings"),
        (_rows([1.0] * DIMS, [1.0] * DIMS).replace(b"1.0", b"1e999"), ""),
        (b'{"data": [{"embedding": [1]}, {"embedding": [1]}]}', "did not answer with embeddings"),
        (b'{"data": null}', "did not answer with embeddings"),
        (b"{}", "did not answer with embeddings"),
        (b"<html>", "did not answer with embeddings"),
    ],
)
async def test_a_wrong_answer_is_an_error(
    models: ScriptedModels, embedder: OpenAIEmbedder, answer: bytes, reason: str
):
    models.embedding_answers = [Answer(answer)]
    with pytest.raises(ModelError, match=f"^the embedding endpoint .*{reason}"):
        await embedder.embed(["a", "b"])


async def test_dimensions_are_asked_for_where_the_model_has_others_and_obeys(
    models: ScriptedModels, embedder: OpenAIEmbedder
):
    models.native_dims, models.obeys_dimensions = 16, True
    for _ in range(2):
        [vector] = await embedder.embed(["text"])
        assert len(vector) == DIMS
    sent = [request.body.get("dimensions") for request in models.embeddings]
    assert sent == [None, DIMS, DIMS]  # what helped once is asked for at once


@pytest.mark.parametrize("native_dims", [4, 16])
async def test_a_model_of_other_dimensions_that_does_not_obey_is_an_error(
    models: ScriptedModels, embedder: OpenAIEmbedder, native_dims: int
):
    models.native_dims = native_dims
    with pytest.raises(ModelError, match=f"vectors of {native_dims} dimensions .* store has 8"):
        await embedder.embed(["text"])


async def test_dimensions_that_are_not_given_are_those_of_the_first_vector(
    models: ScriptedModels, learning: OpenAIEmbedder
):
    models.native_dims = 5
    assert [len(vector) for vector in await learning.embed(["one", "two"])] == [5, 5]
    models.native_dims = 6
    with pytest.raises(ModelError, match="vectors of 6 dimensions where the store has 5"):
        await learning.embed(["three"])


async def test_a_query_is_embedded_once(models: ScriptedModels, embedder: OpenAIEmbedder):
    queries = CachedEmbedder(embedder)
    first = await queries.embed(["where?"])
    first[0].append(0.0)  # what a caller does to its list does not reach the cache
    assert await queries.embed(["where?"]) == [pytest.approx(_unit("where?"))]
    assert len(models.embeddings) == 1


async def test_equal_queries_at_once_share_a_call_even_if_one_gives_up(
    models: ScriptedModels, embedder: OpenAIEmbedder
):
    queries = CachedEmbedder(embedder)
    models.hold.clear()
    callers = [asyncio.create_task(queries.embed(["where?"])) for _ in range(5)]
    await models.asked.wait()
    callers[0].cancel()
    models.hold.set()
    found = await asyncio.gather(*callers[1:])
    assert found == [[pytest.approx(_unit("where?"))]] * 4
    assert callers[0].cancelled()
    assert len(models.embeddings) == 1


async def test_a_failure_reaches_all_who_asked_and_is_not_remembered(
    models: ScriptedModels, embedder: OpenAIEmbedder
):
    queries = CachedEmbedder(embedder)
    models.embedding_answers = [Answer(status=500)]
    results = await asyncio.gather(
        *(queries.embed(["where?"]) for _ in range(3)), return_exceptions=True
    )
    assert [isinstance(result, ModelError) for result in results] == [True] * 3
    assert await queries.embed(["where?"]) == [pytest.approx(_unit("where?"))]


async def test_a_failure_that_nobody_waits_for_any_more_is_not_complained_about(
    models: ScriptedModels, embedder: OpenAIEmbedder
):
    complaints: list[dict[str, Any]] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: complaints.append(context))
    queries = CachedEmbedder(embedder)
    models.hold.clear()
    models.embedding_answers = [Answer(status=500)]
    caller = asyncio.create_task(queries.embed(["where?"]))
    await models.asked.wait()
    [asked] = queries._asked.values()
    caller.cancel()
    models.hold.set()
    await asyncio.wait([asked, caller])
    del asked, caller
    await asyncio.sleep(0)
    gc.collect()
    loop.set_exception_handler(None)
    assert complaints == []


async def test_the_cache_is_bounded_and_keeps_what_was_used_last(
    models: ScriptedModels, embedder: OpenAIEmbedder
):
    queries = CachedEmbedder(embedder, entries=2)
    for text in ("a", "b", "a", "c", "a", "b"):
        await queries.embed([text])
    assert [request.body["input"] for request in models.embeddings] == [["a"], ["b"], ["c"], ["b"]]


async def test_closing_ends_the_calls_that_run(models: ScriptedModels, embedder: OpenAIEmbedder):
    queries = CachedEmbedder(embedder)
    models.hold.clear()
    caller = asyncio.create_task(queries.embed(["where?"]))
    await models.asked.wait()
    await queries.aclose()
    with pytest.raises(asyncio.CancelledError):
        await caller
    models.hold.set()


async def test_an_endpoint_that_is_late_is_left_alone_except_for_what_is_remembered(
    models: ScriptedModels, embedder: OpenAIEmbedder
):
    time = [0.0]
    breaker = CircuitBreaker(failures=2, rest_seconds=5, clock=lambda: time[0])
    queries = CachedEmbedder(embedder, late_seconds=0.05, breaker=breaker)
    await queries.embed(["known"])
    models.hold.clear()
    late = [asyncio.create_task(queries.embed([text])) for text in ("a", "b")]
    async with asyncio.timeout(5):
        while breaker.may_ask():  # noqa: ASYNC110 - time brings it about
            await asyncio.sleep(0.01)
    with pytest.raises(ModelUnavailable, match="left alone"):
        await queries.embed(["c"])
    assert await queries.embed(["known"]) == [pytest.approx(_unit("known"))]
    assert len(models.embeddings) == 3
    models.hold.set()
    await asyncio.gather(*late)
    # What was late is remembered; it says nothing of what is asked next.
    with pytest.raises(ModelUnavailable):
        await queries.embed(["c"])
    assert await queries.embed(["a"]) == [pytest.approx(_unit("a"))]
    time[0] = 5.0
    assert await queries.embed(["c"]) == [pytest.approx(_unit("c"))]
    assert await queries.embed(["d"]) == [pytest.approx(_unit("d"))]
