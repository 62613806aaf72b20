"""While the database is away: honest answers, and recovery without a restart."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

import asyncpg
import pytest

from kaos_dev.embedded_postgres import EmbeddedPostgres
from kaos_memory.storage.postgres.schema import StoreIdentity, prepare

from ..conftest import OWNER, PASSWORD
from .conftest import Service, ServiceFactory
from .test_memory import ALICE, scope


@pytest.fixture
def backend() -> str:
    return "postgres"


@pytest.fixture
def own_postgres() -> Iterator[EmbeddedPostgres]:
    """A server that a test may stop."""
    with EmbeddedPostgres(fsync=False) as server:
        server.create_owner(OWNER, PASSWORD)
        server.create_database("outage", owner=OWNER)
        yield server


async def ready(service: Service) -> bool:
    return (await service.client.get("/readyz")).status_code == 200


async def test_the_service_lives_through_an_outage_and_recovers_by_itself(
    start: ServiceFactory, own_postgres: EmbeddedPostgres
):
    async with start(to=own_postgres.dsn("outage", OWNER)) as service:
        await service.until(lambda: ready(service))
        assert (await service.write(ALICE, "before")).json()["accepted"] is True
        own_postgres.stop("immediate")

        assert (await service.client.get("/healthz")).status_code == 200
        readiness = await service.client.get("/readyz")
        assert readiness.status_code == 503
        assert readiness.json()["ready"] is False
        assert "Connect" not in readiness.text
        recalled = await service.recall(scope("session", **ALICE), "before")
        assert recalled["degraded"] is True
        assert recalled["short_term"]["window"] == []
        soft = await service.write(ALICE, "lost, and said so")
        assert (soft.status_code, soft.json()) == (
            200,
            {"accepted": False, "scheduled": False, "degraded": True},
        )
        strict = await service.write(ALICE, "lost", failure_mode="strict")
        assert strict.status_code == 503
        assert int(strict.headers["retry-after"]) > 0
        assert strict.headers["content-type"] == "application/problem+json"
        user = scope("user", principal="alice")
        forgotten = (await service.post("forget", {"scope": user})).json()
        assert forgotten == {"forgotten": False, "degraded": True}
        refused = await service.post("forget", {"scope": user, "failure_mode": "strict"})
        assert refused.status_code == 503

        own_postgres.start()
        await service.until(lambda: ready(service))
        assert (await service.write(ALICE, "after")).json()["accepted"] is True
        recalled = await service.recall(scope("session", **ALICE))
        assert recalled["short_term"]["window"] == [["user", "before"], ["user", "after"]]


async def test_a_service_that_starts_before_its_database_becomes_ready_when_that_does(
    start: ServiceFactory, own_postgres: EmbeddedPostgres
):
    to = own_postgres.dsn("outage", OWNER)
    own_postgres.stop()
    async with start(to=to) as service:
        assert (await service.client.get("/healthz")).status_code == 200
        assert (await service.client.get("/readyz")).status_code == 503
        assert (await service.write(ALICE, "early")).json()["accepted"] is False
        own_postgres.start()
        await service.until(lambda: ready(service))
        assert (await service.write(ALICE, "now")).json()["accepted"] is True


async def test_a_store_that_points_at_anothers_schema_is_not_ready_and_says_what_to_do(
    start: ServiceFactory, own_postgres: EmbeddedPostgres
):
    to = own_postgres.dsn("outage", OWNER)
    await prepare(to, "kaos_memory", StoreIdentity("another", "embedder", 8))
    async with start(to=to) as service:

        async def refused() -> bool:
            answer = await service.client.get("/readyz")
            assert answer.status_code == 503
            return "belongs to the store 'another'" in answer.text

        await service.until(refused)
        assert (await service.write(ALICE, "x")).json()["accepted"] is False


async def test_more_requests_than_places_wait_and_then_are_refused(
    start: ServiceFactory, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("kaos_memory.api.limits.WAIT_SECONDS", 0.05)
    monkeypatch.setattr("kaos_memory.memory.RECALL_SECONDS", 0.5)
    async with start(request_concurrency=1) as service:
        await service.until(lambda: ready(service))
        service.model.slow.clear()
        body = {"scope": scope("user", principal="alice"), "query": "tea"}
        answers = await asyncio.gather(*(service.post("recall", body) for _ in range(3)))
        service.model.slow.set()
    assert sorted(answer.status_code for answer in answers) == [200, 503, 503]
    refused = next(answer for answer in answers if answer.status_code == 503)
    assert "Retry-After" in refused.headers
    assert next(a for a in answers if a.status_code == 200).json()["degraded"] is True


async def test_recalls_that_wait_for_a_model_keep_nothing_from_being_written_or_erased(
    start: ServiceFactory, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("kaos_memory.api.limits.WAIT_SECONDS", 0.05)
    for limit in ("EMBEDDING_SECONDS", "RECALL_SECONDS"):
        monkeypatch.setattr(f"kaos_memory.memory.{limit}", 60)
    async with start(request_concurrency=1) as service:
        await service.until(lambda: ready(service))
        service.model.slow.clear()
        user = scope("user", principal="alice")
        recalling = asyncio.create_task(service.post("recall", {"scope": user, "query": "tea"}))
        await service.until(waits_for_a_place(service))
        assert (await service.write(ALICE, "tea")).json()["accepted"] is True
        assert (await service.post("forget", {"scope": user})).json()["forgotten"] is True
        service.model.slow.set()
        assert (await recalling).json()["degraded"] is False


def waits_for_a_place(service: Service) -> Callable[[], Awaitable[bool]]:
    async def refused() -> bool:
        body = {"scope": {"level": "user", "principal": "bob"}, "query": ""}
        return (await service.post("recall", body)).status_code == 503

    return refused


async def test_a_slow_sender_takes_no_place(start: ServiceFactory):
    async with start(request_concurrency=1) as service:
        await service.until(lambda: ready(service))
        sent = asyncio.Event()
        body = json.dumps({"scope": {"level": "store"}, "query": ""}).encode()

        async def slowly() -> AsyncIterator[bytes]:
            yield body[:5]
            await sent.wait()
            yield body[5:]

        slow = asyncio.create_task(service.client.post("/v1/recall", content=slowly()))
        answer = await service.recall({"level": "store"})
        assert answer["degraded"] is False
        sent.set()
        assert (await slow).status_code == 200


async def test_the_openapi_document_describes_every_operation(start: ServiceFactory):
    async with start() as service:
        document = (await service.client.get("/openapi.json")).json()
    assert set(document["paths"]) == {
        *("/healthz", "/readyz", "/v1/recall", "/v1/list", "/v1/write", "/v1/forget"),
        *("/v1/sessions/close", "/v1/facts/{fact_id}", "/v1/erasures/{erasure_id}"),
    }
    fact = document["paths"]["/v1/facts/{fact_id}"]
    assert set(fact) == {"get", "delete"}
    assert {(each["name"], each["in"]) for each in fact["get"]["parameters"]} == {
        ("x-actor", "header"),
        ("fact_id", "path"),
        *((name, "query") for name in ("level", "principal", "agent_client_id", "session_id")),
    }
    body = document["paths"]["/v1/write"]["post"]["requestBody"]["content"]["application/json"]
    name = body["schema"]["$ref"].rpartition("/")[2]
    assert "attribution" in document["components"]["schemas"][name]["properties"]


async def test_a_closing_that_takes_too_long_is_refused_and_changes_nothing(
    start: ServiceFactory, dsn: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("kaos_memory.memory.WRITE_SECONDS", 0.2)
    async with start() as service:
        await service.until(lambda: ready(service))
        await service.write(ALICE, "hello")
        connection = await asyncpg.connect(dsn)
        async with connection.transaction():
            await connection.execute("LOCK TABLE kaos_memory.sessions")
            late = await service.post("sessions/close", {"scope": scope("session", **ALICE)})
        await connection.close()
        assert late.status_code == 503
        monkeypatch.setattr("kaos_memory.memory.WRITE_SECONDS", 8)
        closed = await service.post("sessions/close", {"scope": scope("session", **ALICE)})
        assert (closed.status_code, closed.json()) == (202, {"scheduled": True})
