"""What was erased while a fold, an extraction and a write were under way does not come back."""

import random

import pytest

from kaos_memory.storage.protocol import Storage
from kaos_memory.work.workers import Workers

from ..service.conftest import Where
from .held_commits import holding
from .interleaving import WORKERS, World
from .scripted_model import Model
from .traces import Traces

INTERLEAVINGS = 200


@pytest.fixture(params=["postgres", "local"])
def backend(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.mark.slow
@pytest.mark.timeout(900)
async def test_nothing_erased_comes_back_whatever_was_under_way(
    storage: Storage, where: Where, luck: random.Random, caplog: pytest.LogCaptureFixture
):
    model, traces = Model(), Traces(where)
    workers = Workers(storage, model, model, len, concurrency=WORKERS, max_retries=0)
    world = World(storage, workers, model, traces, where, luck)
    workers.start()
    try:
        with holding(world.commit_of_work):
            for number in range(INTERLEAVINGS):
                await world.play(number)
    finally:
        world.let_go()
        await workers.stop(grace_seconds=5)
        await traces.aclose()
    assert len(world.gone) > INTERLEAVINGS
    assert [record.getMessage() for record in caplog.records if record.levelname != "INFO"] == []
