"""What a replica does by the clock."""

import asyncio

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from kaos_memory.settings import LongTerm, Retention
from kaos_memory.storage.protocol import Storage
from kaos_memory.telemetry.instruments import Instruments
from kaos_memory.work import housekeeping
from kaos_memory.work.housekeeping import Housekeeping

from ..conftest import StorageFactory, Where
from ..storage.driving import ALICE, fetch, turns, work_off


async def test_everything_over_age_goes_in_batches_and_is_counted(
    storage: Storage, where: Where, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(housekeeping, "BATCH", 2)
    reader = InMemoryMetricReader()
    instruments = Instruments(MeterProvider([reader]).get_meter("test"))
    await storage.append(ALICE, turns(*"123456789"))
    await work_off(storage)
    [(facts,)] = await fetch(where, "SELECT count(*) FROM facts")
    await fetch(where, "UPDATE facts SET updated_at = now() - interval '8 days'")
    await Housekeeping(storage, Retention(facts_days=7), instruments).retain()
    assert facts > 4
    assert await fetch(where, "SELECT 1 FROM facts") == []
    data = reader.get_metrics_data()
    assert data is not None
    sums = {
        point.attributes["kind"]: point.value  # type: ignore[index, union-attr]
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
        if metric.name == "kaos.memory.retention_rows"
        for point in metric.data.data_points
    }
    assert sums == {"facts": facts}


async def test_it_goes_on_after_the_storage_was_away(
    storage: Storage, monkeypatch: pytest.MonkeyPatch, where: Where
):
    monkeypatch.setattr(housekeeping, "RETAIN_SECONDS", 0.02)
    await storage.append(ALICE, turns("tea", infer=False))
    await work_off(storage)
    await fetch(where, "UPDATE facts SET updated_at = now() - interval '8 days'")
    await storage.close()
    keeping = Housekeeping(storage, Retention(facts_days=7), Instruments())
    keeping.start()
    await asyncio.sleep(0.1)
    await storage.open()
    async with asyncio.timeout(10):
        while await fetch(where, "SELECT 1 FROM facts"):  # noqa: ASYNC110 - it brings it about
            await asyncio.sleep(0.02)
    await keeping.stop()


async def test_an_owner_above_the_limit_gets_an_index(make_storage: StorageFactory):
    storage = make_storage(long_term=LongTerm(exact_search_limit=3))
    await storage.open()
    await storage.append(ALICE, turns(*"123456789"))
    await work_off(storage)
    await Housekeeping(storage, Retention(), Instruments()).index()
    assert await storage.index_large_owners() == 0
    await storage.close()
