"""The published client, unchanged, against our service: what it sends works, what it gets fits."""

import itertools
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from kaos_dev.conversations import SUPPORT

from .conftest import Call, Settled

AGENT = "kaos://agent/support/helper"
OTHER_AGENT = "kaos://agent/support/auditor"
_number = itertools.count(1)


class Person:
    """A user of one test, and the calls made for her."""

    def __init__(self, name: str) -> None:
        self.name = f"{name}-{next(_number)}"

    def session(self, name: str) -> str:
        return f"{self.name}-{name}"

    def write(
        self, turns: Sequence[tuple[str, str]], session: str = "talk", agent: str = AGENT
    ) -> dict[str, Any]:
        attribution = {
            "principal": self.name,
            "agent_client_id": agent,
            "session_id": self.session(session),
        }
        return {"do": "write", "attribution": attribution, "turns": list(turns)}

    def scope(self, level: str, session: str | None = "talk", agent: str = AGENT) -> dict[str, Any]:
        return {
            "level": level,
            "principal": self.name,
            "agent_client_id": agent,
            "session_id": session and self.session(session),
        }

    def recall(self, level: str = "session", query: str = "", **changes: Any) -> dict[str, Any]:
        arguments = {name: changes.pop(name) for name in ("session", "agent") if name in changes}
        return {
            "do": "recall",
            "scope": self.scope(level, **arguments),
            "query": query,
            **changes,
        }

    def forget(self, level: str, **changes: Any) -> dict[str, Any]:
        return {"do": "forget", "scope": self.scope(level, **changes)}


async def test_what_is_written_comes_back_verbatim_and_in_order(call: Call):
    alice = Person("alice")
    first = [
        ("user", "Does the café's “menu” list naïve dishes?"),
        ("assistant", "Yes: 三 of them."),
    ]
    second = [("user", 'Say <|endoftext|> & "quote" it.'), ("assistant", "Done.\nTwo lines.")]

    written, again, recalled = call(alice.write(first), alice.write(second), alice.recall())

    assert written is True
    assert again is True
    assert recalled == {
        "short_term": {"window": [list(turn) for turn in first + second]},
        "medium_term": {"summary": ""},
        "long_term": {"facts": [], "block": ""},
        "degraded": False,
        "is_empty": False,
        "window_of_tuples": True,
    }


async def test_a_long_conversation_comes_back_in_three_tiers(call: Call, settled: Settled):
    alice = Person("alice")
    assert call(*(alice.write([turn]) for turn in SUPPORT.turns)) == [True] * len(SUPPORT.turns)
    await settled()

    [recalled] = call(alice.recall("user", "Which currency is missing?", top_k=3))

    assert recalled["degraded"] is False
    window = [tuple(turn) for turn in recalled["short_term"]["window"]]
    assert 0 < len(window) < len(SUPPORT.turns)
    assert window == list(SUPPORT.turns[-len(window) :])
    assert "nightly export to the warehouse" in recalled["medium_term"]["summary"]
    facts = recalled["long_term"]["facts"]
    assert 0 < len(facts) <= 3
    said = " ".join(content for _, content in SUPPORT.turns)
    for fact in facts:
        assert UUID(fact["id"])
        assert fact["memory"].partition(": ")[2].rstrip(".?") in said
        assert -1 <= fact["score"] <= 1
        assert len(fact["hash"]) == 32
        assert fact["user_id"] == alice.name
        assert fact["agent_id"] == AGENT
        assert fact["metadata"]["kaos_run"] == alice.session("talk")
        assert fact["created_at"] <= fact["updated_at"]
        assert fact["memory"] in recalled["long_term"]["block"]
    assert "currency" in facts[0]["memory"]


async def test_only_the_tiers_asked_for_are_filled(call: Call):
    alice = Person("alice")
    turns = [("user", "I moved to Bergen."), ("assistant", "Noted.")]

    _, window, others, narrow = call(
        alice.write(turns),
        alice.recall(include=["short_term"]),
        alice.recall(include=["medium_term", "long_term"]),
        alice.recall(include=["short_term"], token_budget=3),
    )

    assert window["short_term"]["window"] == [list(turn) for turn in turns]
    assert others["is_empty"] is True
    assert others["degraded"] is False
    assert narrow["short_term"]["window"] == [["assistant", "Noted."]]


async def test_levels_nest_and_stay_within_one_user(call: Call, settled: Settled):
    alice, bob = Person("alice"), Person("bob")
    call(
        *(alice.write([turn]) for turn in SUPPORT.turns),
        *(alice.write([turn], "audit", OTHER_AGENT) for turn in SUPPORT.turns),
    )
    await settled()

    results = call(
        *(alice.recall(level, "export", top_k=50) for level in ("session", "agent", "user")),
        bob.recall("user", "export"),
        bob.recall("session", "export"),
        alice.recall("agent", "export", agent="kaos://agent/support/stranger"),
        alice.recall("store", "export", top_k=50),
    )

    in_session, of_agent, of_user, of_bob, bobs_session, of_stranger, everyone = (
        {(fact["agent_id"], fact["metadata"]["kaos_run"]) for fact in result["long_term"]["facts"]}
        for result in results
    )
    here, there = (AGENT, alice.session("talk")), (OTHER_AGENT, alice.session("audit"))
    assert in_session == of_agent == {here}
    # Both agents were told the same, so that each text comes back once, under one of the two.
    assert of_user
    assert of_user <= {here, there}
    assert of_bob == bobs_session == of_stranger == set()
    assert everyone
    assert results[4]["is_empty"] is True


async def test_forgetting_one_user_empties_her_tiers_and_no_others(call: Call, settled: Settled):
    alice, bob = Person("alice"), Person("bob")
    call(*(each.write([turn]) for turn in SUPPORT.turns for each in (alice, bob)))
    await settled()
    question = ("user", "Which currency is missing?")

    bobs_before, forgotten, hers, bobs_after = call(
        bob.recall(*question),
        alice.forget("user", session=None),
        alice.recall(*question),
        bob.recall(*question),
    )

    assert forgotten is True
    assert hers["is_empty"] is True
    assert hers["degraded"] is False
    assert bobs_before["long_term"]["facts"]
    assert bobs_after == bobs_before


async def test_failures_look_as_the_client_expects(call: Call):
    alice = Person("alice")
    nameless = {"level": "session", "principal": alice.name}

    recalled, soft, strict, written = call(
        {"do": "recall", "scope": nameless, "query": "?"},
        {"do": "forget", "scope": nameless},
        {"do": "forget", "scope": nameless, "failure_mode": "strict"},
        {
            "do": "write",
            "attribution": {"principal": alice.name, "session_id": "talk"},
            "turns": [("user", "Nobody listens.")],
            "failure_mode": "strict",
        },
    )

    assert recalled["is_empty"] is True
    assert recalled["degraded"] is True
    assert soft is False
    assert strict == {"raised": "HTTPStatusError", "status": 400}
    assert written == {"raised": "HTTPStatusError", "status": 403}
