"""Requests as bytes: built before the clock starts."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from bench.conversation import Turn, as_json

AGENT = "kaos://agent/bench/companion"


@dataclass(frozen=True)
class Owner:
    """Whose memory a request is about."""

    principal: str
    session: str
    agent: str = AGENT

    def named(self) -> dict[str, str]:
        """The identities as the wire has them."""
        return {
            "principal": self.principal,
            "agent_client_id": self.agent,
            "session_id": self.session,
        }


def write(owner: Owner, turns: list[Turn]) -> bytes:
    """A write of turns into the owner's session."""
    return post("/v1/write", {"attribution": owner.named(), "turns": as_json(turns)})


def window_recall(owner: Owner) -> bytes:
    """A recall of the window alone."""
    scope = {"level": "session", **owner.named()}
    return post("/v1/recall", {"scope": scope, "query": "", "include": ["short_term"]})


def full_recall(owner: Owner, question: str) -> bytes:
    """A recall of all tiers at the user level, in a session, with every default."""
    return post("/v1/recall", {"scope": {"level": "user", **owner.named()}, "query": question})


def forget(owner: Owner) -> bytes:
    """An erasure of all that is known about a user, whoever was told it."""
    return post("/v1/forget", {"scope": {"level": "user", "principal": owner.principal}})


def post(path: str, body: Any, headers: Mapping[str, str] | None = None) -> bytes:
    """A POST of JSON over a connection that is kept alive."""
    content = orjson.dumps(body)
    head = {
        "Host": "127.0.0.1",
        "Content-Type": "application/json",
        "Content-Length": str(len(content)),
        **(headers or {}),
    }
    lines = "\r\n".join(f"{name}: {value}" for name, value in head.items())
    return f"POST {path} HTTP/1.1\r\n{lines}\r\n\r\n".encode() + content
