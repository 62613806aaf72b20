import math
from collections.abc import Awaitable, Callable
from typing import Any

import openai
import pytest

from kaos_dev.model_server import EMBEDDING_MODEL

Post = Callable[[str, Any], Awaitable[tuple[int, dict[str, Any]]]]


async def _vectors(client: openai.AsyncOpenAI, model: str, *texts: str) -> list[list[float]]:
    answer = await client.embeddings.create(model=model, input=list(texts))
    return [item.embedding for item in answer.data]


def _cosine(a: list[float], b: list[float]) -> float:
    return sum(x * y for x, y in zip(a, b, strict=True))


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
async def test_a_wrong_embedding_request_is_refused(post: Post, body: dict[str, Any], message: str):
    status, error = await post("embeddings", {"model": "hash-8", **body})
    assert status == 400
    assert message in error["message"]
    assert error["type"] == "invalid_request_error"
