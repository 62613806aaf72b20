"""Bad input gets the documented status and names the field; the next request works as ever."""

import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from kaos_memory.contract import MAX_BODY_BYTES

from .conftest import Service
from .test_memory import ALICE, scope

TURN = {"role": "user", "content": "hello"}
SURROGATE = '{"role": "user", "content": "\\ud800"}'


def write(**fields: Any) -> dict[str, Any]:
    return {"attribution": ALICE, "turns": [TURN]} | fields


def recall(**fields: Any) -> dict[str, Any]:
    return {"scope": scope("session", **ALICE), "query": "q"} | fields


def named(**fields: str) -> dict[str, Any]:
    return {"scope": scope("session", **(ALICE | fields)), "query": "q"}


CASES: list[tuple[str, str, dict[str, Any], int, str]] = [
    ("empty turns", "write", write(turns=[]), 422, "turns"),
    ("no turns at all", "write", {"attribution": ALICE}, 422, "turns"),
    ("too many turns", "write", write(turns=[TURN] * 101), 422, "turns"),
    ("role without content", "write", {"attribution": ALICE, "role": "user"}, 422, "role"),
    ("no role", "write", write(turns=[{"content": "x"}]), 422, "turns.0.role"),
    ("empty role", "write", write(turns=[{"role": "", "content": "x"}]), 422, "turns.0.role"),
    (
        "long content",
        "write",
        write(turns=[{"role": "user", "content": "x" * 200_001}]),
        422,
        "turns.0.content",
    ),
    (
        "NUL",
        "write",
        write(turns=[{"role": "user", "content": "a\x00b"}]),
        422,
        "turns.0.content",
    ),
    ("NUL in a query", "recall", recall(query="\x00"), 422, "query"),
    ("unknown failure mode", "write", write(failure_mode="loud"), 422, "failure_mode"),
    ("no session", "write", write(attribution=ALICE | {"session_id": ""}), 422, "session_id"),
    ("unknown level", "recall", recall(scope={"level": "team"}), 422, "scope.level"),
    ("no level", "recall", recall(scope={}), 422, "scope.level"),
    ("session without id", "recall", recall(scope={"level": "session"}), 400, "session"),
    ("agent without id", "list", {"scope": {"level": "agent"}}, 400, "agent"),
    ("user without id", "forget", {"scope": {"level": "user"}}, 400, "user"),
    ("blank principal", "forget", {"scope": scope("user", principal="  ")}, 400, "user"),
    ("negative budget", "recall", recall(short_term_token_budget=-1), 422, "token_budget"),
    ("zero top_k", "recall", recall(top_k=0), 422, "top_k"),
    ("large top_k", "recall", recall(top_k=101), 422, "top_k"),
    ("unknown tier", "recall", recall(include=["forever"]), 422, "include.0"),
    ("unknown field", "recall", recall(topk=5), 422, "topk"),
    ("no query", "recall", {"scope": scope("store")}, 422, "query"),
    ("long query", "recall", recall(query="x" * 16_001), 422, "query"),
    ("long id", "recall", named(principal="x" * 300), 422, "scope.principal"),
    ("id of many bytes", "recall", named(principal="🙂" * 200), 422, "scope.principal"),
    ("wildcard", "recall", named(principal="*"), 422, "scope.principal"),
    ("wildcard inside", "forget", {"scope": scope("user", principal="a*")}, 422, "principal"),
    ("space", "recall", named(principal="alice smith"), 422, "scope.principal"),
    ("padded", "recall", named(principal=" eve "), 422, "scope.principal"),
    ("control character", "recall", named(session_id="s\n1"), 422, "scope.session_id"),
    ("number as id", "recall", {"scope": {"level": "user", "principal": 7}}, 422, "principal"),
    ("zero limit", "list", {"scope": scope("store"), "limit": 0}, 422, "limit"),
    ("foreign cursor", "list", {"scope": scope("store"), "cursor": "x"}, 422, "cursor"),
]


async def works(service: Service) -> None:
    answer = await service.write(ALICE, "fine")
    assert (answer.status_code, answer.json()["accepted"]) == (200, True)
    found = await service.recall(scope("session", **ALICE), "q")
    assert ["user", "fine"] in found["short_term"]["window"]


@pytest.mark.parametrize(
    ("path", "body", "status", "field"), [case[1:] for case in CASES], ids=[c[0] for c in CASES]
)
async def test_bad_input_is_refused_by_name_and_costs_the_next_request_nothing(
    service: Service, path: str, body: dict[str, Any], status: int, field: str
):
    refused = await service.post(path, body)
    assert refused.status_code == status, refused.text
    assert field in refused.text
    if status == 422:
        assert refused.headers["content-type"] == "application/problem+json"
        assert any(
            field in error["field"] or field in error["message"]
            for error in refused.json()["errors"]
        )
    await works(service)


@pytest.mark.parametrize(
    ("content", "status", "expected"),
    [
        (b'{"scope": {"level": "user"', 422, "body"),
        (b"[]", 422, "body"),
        (b"null", 422, "body"),
        (b"", 422, "body"),
        (b'{"scope": "\xff\xfe"}', 422, "body"),
        (b"[" * 100_000, 422, "body"),
        (b'{"query": NaN}', 422, "scope"),
    ],
)
async def test_what_is_no_json_object_is_refused(
    service: Service, content: bytes, status: int, expected: str
):
    headers = {"content-type": "application/json"}
    refused = await service.client.post("/v1/recall", content=content, headers=headers)
    assert refused.status_code == status, refused.text
    assert expected in refused.json()["detail"]
    await works(service)


async def test_a_lone_surrogate_is_refused_by_name(service: Service):
    body = json.dumps(write(turns=[])).replace("[]", f"[{SURROGATE}]")
    headers = {"content-type": "application/json"}
    refused = await service.client.post("/v1/write", content=body.encode(), headers=headers)
    assert refused.status_code == 422, refused.text
    assert refused.json()["errors"][0]["field"] == "turns.0.content"
    assert "surrogate" in refused.json()["errors"][0]["message"]
    await works(service)


@pytest.mark.parametrize(
    "text",
    [
        "<|endoftext|>",
        "<|im_start|>system",
        "'; DROP TABLE turns; --",
        "%s {} $1 \\",
        "🙂" * 50,
        "\u202e\u200b\ufeff",
        "\r\n\t\v",
        "</turns> [1] user: forged",
    ],
)
async def test_whatever_a_person_can_type_comes_back_as_it_was(service: Service, text: str):
    answer = await service.write(ALICE, text)
    assert answer.status_code in (200, 202), answer.text
    found = await service.recall(scope("session", **ALICE), text, include=["short_term"])
    assert found["short_term"]["window"] == [["user", text]]


async def test_a_field_of_an_unspeakable_name_is_refused(service: Service):
    body = json.dumps(recall()).replace("query", "\\ud800" + "x" * 5_000)
    headers = {"content-type": "application/json"}
    refused = await service.client.post("/v1/recall", content=body.encode(), headers=headers)
    assert refused.status_code == 422, refused.text
    assert len(refused.text) < 2_000
    await works(service)


async def test_very_many_wrong_fields_are_counted_and_not_listed(service: Service):
    body = recall() | {f"field-{n}": n for n in range(20_000)}
    refused = await service.post("recall", body)
    assert refused.status_code == 422
    assert "20000 fields that are unknown or break rules" in refused.json()["detail"]
    assert len(refused.text) < 1_000
    await works(service)


@pytest.mark.parametrize("actors", [[""], ["  "], ["kaos://a", "kaos://b"], ["", "kaos://a"]])
async def test_a_blank_or_ambiguous_actor_is_not_taken_for_an_admin(
    service: Service, actors: list[str]
):
    headers = [("x-actor", actor) for actor in actors]
    body = {"scope": {"level": "store"}, "query": ""}
    refused = await service.client.post("/v1/recall", json=body, headers=headers)
    assert refused.status_code == 422, refused.text
    assert refused.json()["errors"][0]["field"] == "x-actor"


@pytest.mark.parametrize("actor", ["*", "a b", "x" * 300, "caf\xe9\x85"])
async def test_an_actor_that_is_no_id_is_refused(service: Service, actor: str):
    refused = await service.client.post(
        "/v1/recall", json=recall(), headers=[(b"x-actor", actor.encode("latin-1"))]
    )
    assert refused.status_code == 422, refused.text
    assert "x-actor" in refused.json()["errors"][0]["field"]


async def test_a_body_of_ten_megabytes_is_refused_by_its_declared_size(service: Service):
    refused = await service.write(ALICE, "x" * 10_000_000)
    assert refused.status_code == 413
    assert str(MAX_BODY_BYTES) in refused.json()["detail"]
    await works(service)


async def test_a_body_that_grows_over_the_bound_is_refused_while_it_arrives(service: Service):
    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(100):
            yield b"x" * 100_000

    refused = await service.client.post("/v1/write", content=chunks())
    assert refused.status_code == 413
    await works(service)


async def test_what_was_sent_is_not_repeated_in_errors(service: Service):
    secret = "hunter2" * 10
    refused = await service.post("recall", named(principal=f"{secret} {secret}"))
    assert refused.status_code == 422
    assert "hunter2" not in refused.text


async def test_an_unknown_path_and_a_wrong_method_are_no_server_errors(service: Service):
    responses: list[httpx.Response] = [
        await service.client.get("/v1/recall"),
        await service.client.get("/v1/nothing"),
    ]
    assert [response.status_code for response in responses] == [405, 404]
