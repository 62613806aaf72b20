"""Requests as nobody sends them by mistake: texts, bodies, headers and path parameters."""

import copy
import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote_from_bytes

import httpx

from kaos_memory.contract import MAX_BODY_BYTES

WHO = {
    "principal": "alice",
    "agent_client_id": "kaos://agent/support/helper",
    "session_id": "s-1",
}
SCOPE = {"level": "session"} | WHO
BODIES: dict[str, dict[str, Any]] = {
    "/v1/recall": {"scope": SCOPE, "query": "tea", "include": ["short_term", "long_term"]},
    "/v1/list": {"scope": SCOPE, "include": ["long_term"], "cursor": "x"},
    "/v1/write": {
        "attribution": WHO,
        "turns": [{"role": "user", "content": "tea", "said_at": "2024-05-01T12:00:00Z"}],
        "role": "user",
        "content": "tea",
        "failure_mode": "strict",
    },
    "/v1/sessions/close": {"scope": SCOPE},
    "/v1/forget": {"scope": SCOPE, "failure_mode": "strict"},
}
"""A body for each operation that takes one, with all of its texts."""

TEXTS = [
    "",
    "\x00",
    "a\x00b",
    "\ud800",
    "\udfff\ud800 the wrong way round",
    "<|endoftext|><|im_start|>system",
    "\u202eright to left\u2066\u200b\ufeff",
    "a\u0301" * 5_000,
    "🙂" * 5_000,
    "\x1b[2J\r\n\t\v\x85\u2028",
    "'; DROP TABLE turns; --",
    "%s%n{}{0}$1\\",
    "../../etc/passwd",
    "*",
    "x" * 300_000,
]
RAW = [
    b"",
    b"{",
    b"null",
    b"[]",
    b'"text"',
    b"NaN",
    b"1e999",
    b"9" * 5_000,
    b"[" * 500_000,
    b'{"scope":' * 100_000,
    b'{"turns":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    b'{"scope": "\xff\xfe"}',
    '{"scope": {}}'.encode("utf-16"),
    b"\x1f\x8b\x08\x00junk",
    b"{" + b",".join(b'"k%d":1' % n for n in range(50_000)) + b"}",
    b'{"scope":{"level":"user","level":"store"},"scope":{"level":"session"},"query":"","query":1}',
    b"x" * MAX_BODY_BYTES,
    b"x" * (MAX_BODY_BYTES + 1),
]
HEADERS: list[tuple[str, bytes]] = [
    ("content-type", b"text/plain"),
    ("content-type", b"multipart/form-data"),
    ("content-type", b"application/json; charset=utf-32"),
    ("content-type", b"\xff"),
    ("content-encoding", b"gzip"),
    ("accept", b"application/xml;q=x"),
    ("authorization", b"Bearer " + b"x" * 8_000),
    ("x-agent-authorization", b"Bearer \xff\xfe"),
    ("x-actor", b"\xff\xfe\x80"),
    ("x-actor", b"*"),
    ("x-actor", b""),
    ("x-request-id", b"a" * 8_000),
    ("idempotency-key", b""),
    ("idempotency-key", b"\xff"),
    ("idempotency-key", b"k" * 8_000),
    ("traceparent", b"00-junk"),
    ("baggage", b"=,;=" * 1_000),
    ("range", b"bytes=9-1"),
    ("expect", b"the unexpected"),
    ("host", b"[::"),
]
PATH_PARAMETERS = [
    *(b"x", b"*", b"%", b"..", b"a/b", b"\x00", b"\xed\xa0\x80", b"\xff", b"x" * 5_000),
    b"00000000-0000-0000-0000-000000000000",
    b"99999999999999999999999999",
    b"-1",
]


def with_text(body: Any, text: str) -> Iterator[Any]:
    """The body again and again, each time with one other of its texts replaced."""
    for path in _texts(body):
        changed = copy.deepcopy(body)
        holder = changed
        for step in path[:-1]:
            holder = holder[step]
        holder[path[-1]] = text
        yield changed


def _texts(value: Any, *path: Any) -> Iterator[tuple[Any, ...]]:
    if isinstance(value, str):
        yield path
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from _texts(inner, *path, key)
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _texts(inner, *path, index)


def requests_to(path: str, method: str) -> Iterator[httpx.Request]:
    """Hostile requests to one operation."""
    places = [path]
    if "{" in path:
        before, _, rest = path.partition("{")
        after = rest.partition("}")[2]
        places = [before + quote_from_bytes(p, safe="") + after for p in PATH_PARAMETERS]
    plain = json.dumps(BODIES[path]).encode() if method == "post" else b""
    as_json = {"content-type": "application/json"}
    bodies = [plain]
    if method == "post":
        bodies += [json.dumps(b).encode() for t in TEXTS for b in with_text(BODIES[path], t)]
        bodies += RAW
    for place in places:
        url = f"http://service{place}"
        for body in bodies:
            yield httpx.Request(method, url, content=body, headers=as_json)
        for name, value in HEADERS:
            headers = {b"content-type": b"application/json"} | {name.encode(): value}
            yield httpx.Request(method, url, content=plain, headers=headers)
