"""`Idempotency-Key` on the wire."""

import asyncio
from typing import Any

import httpx
import pytest

from .conftest import Service, ServiceFactory
from .test_memory import ALICE, scope

BODY = {"attribution": ALICE, "turns": [{"role": "user", "content": "hello"}]}


async def write(service: Service, key: str = "key-1", /, **fields: Any) -> httpx.Response:
    return await service.post("write", BODY | fields, Idempotency_Key=key)


async def window(service: Service) -> list[list[str]]:
    found = await service.recall(scope("session", **ALICE), include=["short_term"])
    return found["short_term"]["window"]


async def test_the_same_write_again_is_answered_as_the_first(service: Service):
    first, again = await write(service), await write(service)
    assert (first.status_code, first.json()) == (again.status_code, again.json())
    assert first.json() == {"accepted": True, "scheduled": False, "degraded": False}
    assert await window(service) == [["user", "hello"]]
    assert (await write(service, "key-2")).status_code == 200
    assert len(await window(service)) == 2


async def test_a_retry_of_a_write_that_made_work_due_is_202_too(service: Service):
    long: dict[str, Any] = {"turns": [{"role": "user", "content": "word " * 15}] * 2}
    first = await write(service, **long)
    again = await write(service, **long)
    assert (first.status_code, again.status_code) == (202, 202)
    assert first.json() == again.json()


async def test_another_body_under_the_same_key_is_409(service: Service):
    await write(service)
    refused = await write(service, infer=False)
    assert refused.status_code == 409
    assert refused.headers["content-type"] == "application/problem+json"
    assert "Idempotency-Key" in refused.json()["detail"]
    assert "key of its own" in refused.json()["detail"]
    assert len(await window(service)) == 1


@pytest.mark.parametrize(
    "keys", [[""], ["  "], ["x" * 201], ["caf\xe9"], ["a\tb"], ["a", "a"], ["a", "b"]]
)
async def test_a_key_out_of_its_bounds_is_refused_by_name(service: Service, keys: list[str]):
    headers = [(b"idempotency-key", key.encode("latin-1")) for key in keys]
    refused = await service.client.post("/v1/write", json=BODY, headers=headers)
    assert refused.status_code == 422, refused.text
    assert refused.json()["errors"][0]["field"] == "idempotency-key"
    assert await window(service) == []


@pytest.mark.parametrize("key", ["k", "~" * 200, '"8e03978e-40d5-43dd-bc93-6894a57f9324"', "a b"])
async def test_printable_keys_are_taken(service: Service, key: str):
    assert (await write(service, key)).status_code == 200


@pytest.mark.parametrize("backend", ["postgres"])
async def test_of_thirty_at_once_at_two_replicas_one_is_stored(start: ServiceFactory):
    async with start() as one, start() as other:
        for service in (one, other):

            async def ready(service: Service = service) -> bool:
                return (await service.client.get("/readyz")).status_code == 200

            await service.until(ready)
        answers = await asyncio.gather(*(write((one, other)[n % 2]) for n in range(30)))
        assert {answer.status_code for answer in answers} == {200}
        assert len({answer.text for answer in answers}) == 1
        assert await window(other) == [["user", "hello"]]
