"""The bridge between Mem0's thread and the event loop: it ends when the extraction does."""

import asyncio

import pytest

from kaos_memory.engine.mem0_extractor import Mem0Extractor
from kaos_memory.engine.models import OpenAIEmbedder
from kaos_memory.engine.protocols import ModelError, Neighbour

from .scripted import ALICE, DIMS, ScriptedModels, nobody, turns


async def test_cancelling_ends_the_model_call_and_frees_the_thread(models: ScriptedModels):
    patient = OpenAIEmbedder(models.model(), DIMS)
    extractor = Mem0Extractor(models.model(), patient)
    models.hold.clear()
    task = asyncio.create_task(extractor.extract(ALICE, turns("I like tea"), nobody))
    await models.asked.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.wait_for(asyncio.to_thread(extractor._threads.shutdown), 2)
    models.hold.set()
    await extractor.aclose()
    await patient.aclose()
    assert len(models.requests) == 1


async def test_an_extraction_has_a_deadline_of_its_own(
    models: ScriptedModels, embedder: OpenAIEmbedder
):
    async def never(*_: object) -> list[Neighbour]:
        await asyncio.Event().wait()
        raise AssertionError

    extractor = Mem0Extractor(models.model(), embedder, seconds=0.2)
    with pytest.raises(ModelError, match=r"longer than 0\.2 s"):
        await extractor.extract(ALICE, turns("I like tea"), never)
    await extractor.aclose()
