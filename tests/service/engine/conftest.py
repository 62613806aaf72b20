"""Scripted models on a real socket, and the engine's parts on top of them."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from kaos_memory.engine.mem0_extractor import Mem0Extractor
from kaos_memory.engine.models import OpenAIEmbedder

from .scripted import DIMS, ScriptedModels


@pytest.fixture
async def models() -> AsyncIterator[ScriptedModels]:
    scripted: list[ScriptedModels] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await scripted[0].serve(reader, writer)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    scripted.append(ScriptedModels(f"http://127.0.0.1:{port}/v1"))
    yield scripted[0]
    server.close()
    for handler in list(scripted[0].handlers):
        handler.cancel()
    await asyncio.gather(*scripted[0].handlers, return_exceptions=True)
    await server.wait_closed()


@pytest.fixture
async def embedder(models: ScriptedModels) -> AsyncIterator[OpenAIEmbedder]:
    made = OpenAIEmbedder(models.model("embedder"), DIMS, seconds=0.5)
    yield made
    await made.aclose()


@pytest.fixture
async def learning(models: ScriptedModels) -> AsyncIterator[OpenAIEmbedder]:
    """An embedder that is not told the dimensions."""
    made = OpenAIEmbedder(models.model("embedder"), None, seconds=0.5)
    yield made
    await made.aclose()


@pytest.fixture
async def extractor(
    models: ScriptedModels, embedder: OpenAIEmbedder
) -> AsyncIterator[Mem0Extractor]:
    made = Mem0Extractor(models.model("writer"), embedder, chat_seconds=0.5)
    yield made
    await made.aclose()
