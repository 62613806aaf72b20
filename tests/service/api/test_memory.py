"""What callers see: three tiers filled by a conversation, levels that nest, erasure."""

import pytest

from kaos_memory.contract import Erasure, ErasureLevel
from kaos_memory.storage.local.storage import LocalStorage
from kaos_memory.storage.postgres.storage import PostgresStorage

from .conftest import Service, ServiceFactory

HELPER = "kaos://agent/support/helper"
OTHER = "kaos://agent/support/other"
ALICE = {"principal": "alice", "agent_client_id": HELPER, "session_id": "s-1"}
BOB = {"principal": "bob", "agent_client_id": HELPER, "session_id": "s-1"}
LONG = "the train to paris was late again and nobody at the station knew why"


def scope(level: str, **named: str) -> dict[str, str]:
    return {"level": level, **named}


async def talk(service: Service, who: dict[str, str], *contents: str) -> None:
    """Write turns and wait for the background work that they make due."""
    for content in contents:
        response = await service.write(who, content)
        assert response.json()["accepted"] is True

    await settled(service, who, facts=len(contents) - 1)


async def settled(service: Service, who: dict[str, str], *, facts: int) -> None:
    """Wait until background work has filled the digest and so many facts."""

    async def filled() -> bool:
        answer = await service.recall(scope("session", **who), include=["medium_term"])
        found = await service.facts(scope("session", **who))
        return bool(answer["medium_term"]["summary"]) and len(found) >= facts

    await service.until(filled)


async def test_a_conversation_fills_all_three_tiers(service: Service):
    first = await service.write(ALICE, LONG)
    assert (first.status_code, first.json()) == (
        200,
        {"accepted": True, "scheduled": False, "degraded": False},
    )
    second = await service.write(ALICE, LONG.replace("paris", "tax office"))
    assert (second.status_code, second.json()["scheduled"]) == (202, True)
    await settled(service, ALICE, facts=1)
    answer = await service.recall(scope("session", **ALICE), "paris")
    assert answer["short_term"]["window"] == [["user", LONG.replace("paris", "tax office")]]
    assert answer["medium_term"]["summary"] == LONG
    [fact] = answer["long_term"]["facts"]
    assert fact["memory"] == f"alice said: {LONG}"
    assert fact["user_id"] == "alice"
    assert fact["agent_id"] == HELPER
    assert fact["metadata"] == {"kaos_run": "s-1"}
    assert 0.5 < fact["score"] <= 1
    assert f'- "alice said: {LONG}"' in answer["long_term"]["block"]
    assert answer["degraded"] is False


async def test_only_the_tiers_that_were_asked_for_come_back(service: Service):
    answer = await service.recall(scope("session", **ALICE), include=["short_term"])
    assert answer == {"short_term": {"window": []}, "degraded": False}


async def test_the_levels_nest_and_no_level_shows_one_user_what_another_said(service: Service):
    elsewhere = ALICE | {"session_id": "s-2"}
    with_other = ALICE | {"agent_client_id": OTHER, "session_id": "s-3"}
    for who, topic in (
        (ALICE, "tea"),
        (elsewhere, "rain"),
        (with_other, "music"),
        (BOB, "python"),
    ):
        await talk(service, who, f"{topic} {LONG}", f"{topic} {LONG} padding")
    for level, named, expected in (
        ("session", ALICE, {"tea"}),
        ("agent", ALICE, {"tea", "rain"}),
        ("user", ALICE, {"tea", "rain", "music"}),
        ("agent", BOB, {"python"}),
        ("user", {"principal": "bob"}, {"python"}),
        ("store", {}, {"tea", "rain", "music", "python"}),
    ):
        facts = await service.facts(scope(level, **named))
        assert {fact.split()[2] for fact in facts} == expected, level
    answer = await service.recall(scope("user", **BOB), "tea train paris", top_k=100)
    assert "alice" not in str(answer)


async def test_a_person_sees_the_sessions_of_all_agents_and_an_agent_only_its_own(
    service: Service,
):
    await service.write(ALICE, "to the helper")
    await service.write(ALICE | {"agent_client_id": OTHER}, "to the other")
    window = ["short_term"]
    person = await service.recall(
        scope("session", principal="alice", session_id="s-1"), include=window
    )
    assert person["short_term"]["window"] == [["user", "to the helper"], ["user", "to the other"]]
    agent = await service.recall(scope("user", **ALICE), include=window)
    assert agent["short_term"]["window"] == [["user", "to the helper"]]
    unnamed = await service.recall(scope("user", principal="alice"), include=window)
    assert unnamed["short_term"]["window"] == []


async def test_a_session_id_of_somebody_else_opens_nothing(service: Service):
    await service.write(ALICE, "hers")
    await service.write(BOB, "his")
    answer = await service.recall(scope("session", **BOB))
    assert answer["short_term"]["window"] == [["user", "his"]]


async def test_a_request_may_narrow_the_window(service: Service):
    await service.write(ALICE, "one two three", "four five six")
    answer = await service.recall(scope("session", **ALICE), short_term_token_budget=3)
    assert answer["short_term"]["window"] == [["user", "four five six"]]


async def test_top_k_bounds_the_facts_and_omitted_means_the_stores_default(
    start: ServiceFactory,
):
    async with start(long_term={"default_top_k": 2}) as service:
        await service.until(lambda: _ready(service))
        await talk(service, ALICE, *(f"{n} {LONG}" for n in range(5)))
        named = scope("user", principal="alice")
        assert len((await service.recall(named, "paris"))["long_term"]["facts"]) == 2
        assert len((await service.recall(named, "paris", top_k=4))["long_term"]["facts"]) == 4


async def test_the_threshold_drops_facts_that_are_less_similar(start: ServiceFactory):
    async with start(long_term={"score_threshold": 0.9}) as service:
        await service.until(lambda: _ready(service))
        await talk(service, ALICE, f"tea {LONG}", f"rain {LONG}")
        assert await service.facts(scope("user", principal="alice"))
        answer = await service.recall(scope("user", principal="alice"), "python")
        assert answer["long_term"] == {"facts": [], "block": ""}
        assert answer["degraded"] is False


async def test_the_long_term_tier_can_be_off_and_is_not_degraded_then(start: ServiceFactory):
    async with start(long_term={"enabled": False}) as service:
        await service.until(lambda: _ready(service))
        for n in range(3):
            await service.write(ALICE, f"{n} {LONG}")
        answer = await service.recall(scope("user", **ALICE), "paris")
        assert answer["long_term"] == {"facts": [], "block": ""}
        assert answer["degraded"] is False


async def test_turns_written_without_inference_become_facts_word_for_word(service: Service):
    await service.write(ALICE, f"tea {LONG}", infer=False)
    await service.write(ALICE, LONG, infer=False)
    said = [f"alice said: tea {LONG}", f"alice said: {LONG}"]

    async def extracted() -> bool:
        return await service.facts(scope("user", principal="alice")) == said

    await service.until(extracted)


async def test_forgetting_one_user_leaves_the_others_records_as_they_were(service: Service):
    for who in (ALICE, BOB):
        await talk(service, who, f"tea {LONG}", f"rain {LONG}")
    named = scope("user", principal="bob")
    before = (await service.post("list", {"scope": named})).json()
    erased = scope("user", principal="alice")
    planned = (await service.post("forget", {"scope": erased, "dry_run": True})).json()
    assert planned["forgotten"] is False
    assert planned["receipt"]["facts"] == 1
    answer = await service.post("forget", {"scope": erased})
    assert answer.status_code == 200
    receipt = answer.json()["receipt"]
    assert answer.json()["forgotten"] is True
    assert answer.json()["degraded"] is False
    assert (receipt["level"], receipt["facts"], receipt["turns"], receipt["residue"]) == (
        "user",
        1,
        1,
        0,
    )
    assert (await service.recall(scope("user", **ALICE), "tea"))["short_term"]["window"] == []
    assert await service.facts(erased) == []
    assert (await service.post("list", {"scope": named})).json() == before


async def test_pages_of_a_list_end_without_a_cursor(service: Service):
    await talk(service, ALICE, *(f"{n} {LONG}" for n in range(5)))
    body = {"scope": scope("user", principal="alice"), "limit": 3, "include": ["long_term"]}
    first = (await service.post("list", body)).json()
    second = (await service.post("list", body | {"cursor": first["next_cursor"]})).json()
    assert len(first["long_term"]["facts"]) == 3
    assert len(second["long_term"]["facts"]) == 1
    assert "next_cursor" not in second


async def test_a_failing_model_degrades_recall_and_leaves_writes_alone(service: Service):
    await talk(service, ALICE, f"tea {LONG}", f"rain {LONG}")
    service.model.failing = True
    answer = await service.recall(scope("session", **ALICE), "tea")
    assert answer["degraded"] is True
    [fact] = answer["long_term"]["facts"]  # found by its words alone
    assert fact["memory"] == f"alice said: tea {LONG}"
    assert "score" not in fact
    assert answer["short_term"]["window"] == [["user", f"rain {LONG}"]]
    assert (await service.write(ALICE, LONG)).json()["accepted"] is True
    pending = await service.recall(scope("session", **ALICE), include=["short_term"])
    assert [turn[1] for turn in pending["short_term"]["window"]][-1] == LONG


async def test_a_slow_model_holds_up_neither_writes_nor_windows(service: Service):
    service.model.slow.clear()
    for n in range(10):
        assert (await service.write(ALICE, f"{n} {LONG}")).json()["accepted"] is True
    answer = await service.recall(scope("session", **ALICE), include=["short_term"])
    assert answer["short_term"]["window"][-1] == ["user", f"9 {LONG}"]
    service.model.slow.set()


async def _ready(service: Service) -> bool:
    return (await service.client.get("/readyz")).status_code == 200


@pytest.mark.parametrize("path", ["recall", "list", "forget"])
async def test_the_store_level_is_closed_to_agents(service: Service, path: str):
    body = {"scope": {"level": "store"}} | ({"query": "x"} if path == "recall" else {})
    refused = await service.post(path, body, X_Actor=HELPER)
    assert refused.status_code == 403
    assert refused.json()["error"] == "store scope is admin-only"
    assert refused.json().get("forgotten", False) is False
    assert (await service.post(path, body)).status_code == 200


async def test_the_stores_ceiling_caps_every_actor(start: ServiceFactory):
    async with start(max_read_scope="session") as service:
        await service.until(lambda: _ready(service))
        body = {"scope": scope("agent", **ALICE), "query": "x"}
        refused = await service.post("recall", body, X_Actor=HELPER)
        assert refused.status_code == 403
        assert "maxReadScope session" in refused.json()["error"]
        body["scope"] = scope("session", **ALICE)
        assert (await service.post("recall", body, X_Actor=HELPER)).status_code == 200


async def test_a_write_without_an_agent_is_refused(service: Service):
    refused = await service.write({"principal": "alice", "session_id": "s-1"}, "hello")
    assert refused.status_code == 403
    assert refused.json() == {"accepted": False, "error": "missing required agent identity"}


@pytest.mark.parametrize(("residue", "forgotten"), [(0, True), (3, False)])
async def test_nothing_is_called_forgotten_while_a_second_scan_finds_rows(
    service: Service, monkeypatch: pytest.MonkeyPatch, residue: int, forgotten: bool
):
    async def erase(*_: object, **__: object) -> Erasure:
        return Erasure(
            level=ErasureLevel.USER, turns=1, digests=0, facts=0, sessions=1, residue=residue
        )

    for storage in (PostgresStorage, LocalStorage):
        monkeypatch.setattr(storage, "erase", erase)
    answer = await service.post("forget", {"scope": scope("user", principal="alice")})
    assert answer.json()["forgotten"] is forgotten
    assert answer.json()["degraded"] is not forgotten
