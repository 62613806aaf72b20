"""The engine against a server that refuses what OpenAI refuses."""

from collections.abc import Iterator
from contextlib import aclosing

import pytest

from kaos_dev.model_server import CHAT_MODEL, Behaviour, ModelServer
from kaos_memory.engine.mem0_extractor import Mem0Extractor
from kaos_memory.engine.models import OpenAIEmbedder
from kaos_memory.engine.protocols import ModelError
from kaos_memory.engine.summariser import ChatSummariser
from kaos_memory.settings import Model
from kaos_memory.tiers.memory import Digest

from .scripted import ALICE, nobody, turns


@pytest.fixture(scope="module")
def server() -> Iterator[ModelServer]:
    with ModelServer() as serving:
        yield serving


def _model(server: ModelServer, name: str = CHAT_MODEL) -> Model:
    return Model.model_validate({"base_url": server.url, "model": name, "api_key": server.api_key})


@pytest.mark.parametrize("prompt", ["", "Note drinks."])
async def test_facts_are_extracted(server: ModelServer, prompt: str):
    said = turns("I like green tea.\nI moved to Köln in May.", "<|endoftext|> \ud800 \x00")
    async with (
        aclosing(OpenAIEmbedder(_model(server, "hash-16"), 16)) as embedder,
        aclosing(Mem0Extractor(_model(server), embedder, prompt)) as extractor,
    ):
        found = (await extractor.extract(ALICE, said, nobody)).facts
        vectors = await embedder.embed([fact.text for fact in found])
    assert "green tea" in found[0].text
    assert "Köln" in found[1].text
    assert [list(fact.embedding) for fact in found] == vectors


async def test_turns_are_folded(server: ModelServer):
    async with aclosing(ChatSummariser(_model(server))) as summariser:
        digest = await summariser.fold(Digest(1, "Alice has a cat."), turns("I moved to Köln."))
        assert digest.startswith("Alice has a cat.")
        assert "Köln" in digest
        server.script(Behaviour(endpoint="chat", truncated=True))
        with pytest.raises(ModelError, match="cut its answer off"):
            await summariser.fold(Digest(1, "Alice has a cat."), turns("I moved to Köln."))


@pytest.mark.parametrize(
    ("model", "dims"),
    [("hash-16", 16), ("text-embedding-3-small", 1536), ("text-embedding-3-small", 64)],
)
async def test_texts_of_any_length_are_embedded(server: ModelServer, model: str, dims: int):
    async with aclosing(OpenAIEmbedder(_model(server, model), dims)) as embedder:
        found = await embedder.embed(["hi", "\N{GRINNING FACE}" * 50_000, "a" * 200_000])
    assert [len(vector) for vector in found] == [dims] * 3


async def test_dimensions_that_a_model_cannot_have_are_an_error(server: ModelServer):
    async with aclosing(OpenAIEmbedder(_model(server, "hash-16"), 8)) as embedder:
        with pytest.raises(ModelError, match="vectors of 16 dimensions where the store has 8"):
            await embedder.embed(["hi"])
