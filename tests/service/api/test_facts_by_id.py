"""One fact, and one receipt, by id: within the caller's scope, and nowhere else."""

import logging
from uuid import uuid4

import httpx
import pytest

from kaos_memory.storage.local.storage import LocalStorage
from kaos_memory.storage.postgres.storage import PostgresStorage
from kaos_memory.storage.protocol import StorageUnavailable

from .conftest import Service, ServiceFactory
from .test_memory import ALICE, BOB, HELPER, OTHER, scope


async def fact_of(service: Service, who: dict[str, str], text: str) -> str:
    """Have a fact remembered; its id."""
    await service.write(who, text, infer=False)

    async def known() -> bool:
        return any(text in fact for fact in await service.facts(scope("session", **who)))

    await service.until(known)
    body = {"scope": scope("session", **who), "include": ["long_term"]}
    listed = (await service.post("list", body)).json()["long_term"]["facts"]
    return next(fact["id"] for fact in listed if text in fact["memory"])


async def ask(
    service: Service, method: str, path: str, actor: str | None = None, **query: str
) -> httpx.Response:
    headers = {} if actor is None else {"X-Actor": actor}
    return await service.client.request(method, f"/v1/{path}", params=query, headers=headers)


async def test_a_fact_says_what_it_is_and_where_it_comes_from(service: Service):
    identity = await fact_of(service, ALICE, "tea")
    found = await ask(service, "GET", f"facts/{identity}")
    assert found.status_code == 200
    fact = found.json()
    assert (fact["id"], fact["user_id"], fact["agent_id"]) == (identity, "alice", HELPER)
    assert "tea" in fact["memory"]
    source = fact["metadata"]
    assert (source["kaos_run"], source["first_turn"], source["last_turn"]) == ("s-1", 1, 1)
    assert {"said_at", "model", "prompt_hash"} <= set(source)


@pytest.mark.parametrize("method", ["GET", "DELETE"])
@pytest.mark.parametrize(
    ("actor", "query", "status"),
    [
        (None, {}, 200),
        (None, {"level": "user", "principal": "alice"}, 200),
        (None, {"level": "user", "principal": "bob"}, 404),
        (None, {"level": "session", "session_id": "s-2"}, 404),
        (None, {"level": "user"}, 400),
        (None, {"level": "team"}, 422),
        (None, {"principal": "*"}, 422),
        (None, {"scope": "store"}, 422),
        (None, {"fact_id": "x"}, 422),
        (HELPER, {"principal": "alice"}, 200),
        (HELPER, {"principal": "bob"}, 404),
        (HELPER, {}, 404),
        (OTHER, {"principal": "alice"}, 404),
        (OTHER, {"principal": "alice", "level": "user"}, 200),
        (HELPER, {"level": "store"}, 403),
    ],
)
async def test_a_fact_is_there_for_those_who_reach_it(
    service: Service, method: str, actor: str | None, query: dict[str, str], status: int
):
    identity = await fact_of(service, ALICE, "tea")
    answer = await ask(service, method, f"facts/{identity}", actor, **query)
    assert answer.status_code == status, answer.text
    kept = [] if (method, status) == ("DELETE", 200) else ["alice said: tea"]
    assert await service.facts(scope("session", **ALICE)) == kept


async def test_an_agent_reaches_no_further_than_the_store_lets_it(start: ServiceFactory):
    async with start(max_read_scope="session") as service:
        answer = await ask(service, "GET", f"facts/{uuid4()}", HELPER)
    assert answer.status_code == 403


NOBODYS = "7d0f2f4e-3a52-4a5f-9a5e-0c1f3f6a9b1d"


@pytest.mark.parametrize("path", ["facts", "erasures"])
@pytest.mark.parametrize("identity", ["x", "%00", "1" * 5_000, "..%2Fhealthz", NOBODYS])
async def test_an_id_that_is_none_is_404(service: Service, path: str, identity: str):
    assert (await ask(service, "GET", f"{path}/{identity}")).status_code == 404
    if path == "facts":
        assert (await ask(service, "DELETE", f"{path}/{identity}")).status_code == 404


async def test_a_query_parameter_is_given_once(service: Service):
    answer = await service.client.get(f"/v1/facts/{uuid4()}?principal=alice&principal=bob")
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["field"] == "principal"


async def test_an_erased_fact_is_gone_with_a_receipt_and_others_stay(
    service: Service, caplog: pytest.LogCaptureFixture
):
    identity = await fact_of(service, ALICE, "tea")
    await fact_of(service, ALICE, "rain")
    await fact_of(service, BOB, "tea")
    with caplog.at_level(logging.INFO, logger="kaos_memory.memory"):
        answer = await ask(service, "DELETE", f"facts/{identity}", HELPER, principal="alice")
    assert answer.status_code == 200
    body = answer.json()
    assert (body["forgotten"], body["degraded"]) == (True, False)
    receipt = body["receipt"]
    assert (receipt["level"], receipt["facts"], receipt["turns"]) == ("fact", 1, 0)
    assert (await ask(service, "GET", f"facts/{identity}")).status_code == 404
    assert await service.facts(scope("session", **ALICE)) == ["alice said: rain"]
    assert await service.facts(scope("session", **BOB)) == ["bob said: tea"]
    [event] = [record for record in caplog.records if record.message == "erasure"]
    assert event.__dict__["receipt"] == receipt
    assert (await ask(service, "GET", f"erasures/{receipt['id']}")).json() == receipt


async def test_a_receipt_is_for_its_agents_and_for_admins(service: Service):
    await service.write(ALICE, "tea")
    forgotten = await service.post(
        "forget", {"scope": scope("user", principal="alice")}, X_Actor=HELPER
    )
    receipt = forgotten.json()["receipt"]
    path = f"erasures/{receipt['id']}"
    assert (await ask(service, "GET", path)).json() == receipt
    assert (await ask(service, "GET", path, HELPER)).json() == receipt
    assert (await ask(service, "GET", path, OTHER)).status_code == 404
    assert (await ask(service, "GET", path, unknown="1")).status_code == 422


@pytest.mark.parametrize(("mode", "status"), [("soft", 200), ("strict", 503)])
async def test_during_an_outage_nothing_is_called_forgotten(
    start: ServiceFactory, monkeypatch: pytest.MonkeyPatch, mode: str, status: int
):
    async def away(*_: object, **__: object) -> None:
        raise StorageUnavailable("away")

    for storage in (PostgresStorage, LocalStorage):
        for method in ("fact", "erase_fact", "receipt"):
            monkeypatch.setattr(storage, method, away)
    async with start(default_failure_mode=mode) as service:
        answer = await ask(service, "DELETE", f"facts/{uuid4()}")
        assert answer.status_code == status
        if status == 200:
            assert answer.json() == {"forgotten": False, "degraded": True}
        for path in ("facts", "erasures"):
            assert (await ask(service, "GET", f"{path}/{uuid4()}")).status_code == 503
