"""An OpenAI-compatible server on a real socket whose answers a test scripts."""

import asyncio
import hashlib
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from kaos_memory.engine.protocols import Neighbour
from kaos_memory.settings import Model
from kaos_memory.tiers.memory import Owner, Turn

DIMS = 8
KEY = "sk-not-a-secret"


def completion(content: str | None, *, finish_reason: str = "stop") -> bytes:
    """The body of a chat answer."""
    message = {"role": "assistant", "content": content}
    return json.dumps(
        {"choices": [{"index": 0, "message": message, "finish_reason": finish_reason}]}
    ).encode()


def facts(*texts: str) -> bytes:
    """The body of a well-formed extraction."""
    return completion(json.dumps({"memory": [{"id": "0", "text": text} for text in texts]}))


def vector_of(text: str, dims: int = DIMS) -> list[float]:
    """A vector that only this text has."""
    digest = hashlib.sha256(text.encode()).digest()
    return [digest[index % 32] - 127.5 for index in range(dims)]


def vectors(texts: Sequence[str], dims: int = DIMS) -> bytes:
    """The body of an embeddings answer, its rows in reverse, as the contract allows."""
    rows = [{"index": i, "embedding": vector_of(text, dims)} for i, text in enumerate(texts)]
    return json.dumps({"object": "list", "data": rows[::-1]}).encode()


@dataclass
class Answer:
    """One scripted answer."""

    body: bytes = b"{}"
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict[str, str])
    hang: bool = False
    """Never answer."""
    drip: bool = False
    """Answer one byte at a time, without end."""
    cut: bool = False
    """Close the connection in the middle of the body."""


@dataclass
class Request:
    """One request as it came."""

    path: str
    headers: dict[str, str]
    body: dict[str, Any]

    @property
    def system(self) -> str:
        return self.body["messages"][0]["content"]

    @property
    def user(self) -> str:
        return self.body["messages"][1]["content"]


class ScriptedModels:
    """Chats and reranks answer what is scripted, in order; embeddings work unless scripted."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.requests: list[Request] = []
        self.chat_answers: list[Answer] = []
        self.embedding_answers: list[Answer] = []
        self.rerank_answers: list[Answer] = []
        self.reply: Callable[[Request], bytes] | None = None
        """Answers chats that depend on their request."""
        self.native_dims = DIMS
        self.obeys_dimensions = False
        self.hold = asyncio.Event()
        self.hold.set()
        """Cleared: requests wait for it."""
        self.asked = asyncio.Event()
        """Set by every request."""
        self.handlers: set[asyncio.Task[None]] = set()

    def model(self, name: str = "model", *, key: str = KEY) -> Model:
        return Model.model_validate({"base_url": self.url, "model": name, "api_key": key})

    def say(self, *bodies: bytes) -> None:
        self.chat_answers += [Answer(body) for body in bodies]

    @property
    def chats(self) -> list[Request]:
        return [request for request in self.requests if request.path.endswith("/chat/completions")]

    @property
    def embeddings(self) -> list[Request]:
        return [request for request in self.requests if request.path.endswith("/embeddings")]

    @property
    def reranks(self) -> list[Request]:
        return [request for request in self.requests if request.path.endswith("/rerank")]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.handlers.add(task)
        try:
            while (request := await self._read(reader)) is not None:
                self.requests.append(request)
                self.asked.set()
                await self.hold.wait()
                answer = self._answer(request)
                if answer.hang:
                    await reader.read()  # until the client gives up
                    break
                if answer.drip:
                    writer.write(b"HTTP/1.1 200 Scripted\r\n\r\n")
                    while not reader.at_eof():
                        writer.write(b" ")
                        await asyncio.sleep(0.02)
                    break
                lines = [f"HTTP/1.1 {answer.status} Scripted"]
                lines += [f"{name}: {value}" for name, value in answer.headers.items()]
                lines += [f"content-length: {len(answer.body)}", "", ""]
                sent = answer.body[: len(answer.body) // 2] if answer.cut else answer.body
                writer.write("\r\n".join(lines).encode() + sent)
                await writer.drain()
                if answer.cut:
                    break
        except (ConnectionError, asyncio.CancelledError):
            pass
        finally:
            writer.close()
            self.handlers.discard(task)

    async def _read(self, reader: asyncio.StreamReader) -> Request | None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
        except asyncio.IncompleteReadError:
            return None
        first, *lines = head.strip().split("\r\n")
        headers = dict(re.split(r":\s*", line.lower(), maxsplit=1) for line in lines)
        body = json.loads(await reader.readexactly(int(headers["content-length"])))
        return Request(first.split()[1], headers, body)

    def _answer(self, request: Request) -> Answer:
        if request.path.endswith("/chat/completions"):
            if self.reply is not None:
                return Answer(self.reply(request))
            return self.chat_answers.pop(0) if self.chat_answers else Answer(status=500)
        if request.path.endswith("/rerank"):
            return self.rerank_answers.pop(0) if self.rerank_answers else Answer(status=500)
        if self.embedding_answers:
            return self.embedding_answers.pop(0)
        asked = request.body.get("dimensions")
        if asked is not None and not self.obeys_dimensions:
            return Answer(status=400)
        return Answer(vectors(request.body["input"], asked or self.native_dims))


NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)
ALICE = Owner("alice", "kaos://agent/team/helper", "s1")
BOB = Owner("bob", "kaos://agent/team/helper", "s1")


def turns(*contents: str, role: str = "user", infer: bool = True, tokens: int = 5) -> list[Turn]:
    """Turns of a day in the past, from position 1."""
    return [
        Turn(position, role, content, tokens, infer, NOON, NOON)
        for position, content in enumerate(contents, start=1)
    ]


async def nobody(embedding: Sequence[float], limit: int) -> list[Neighbour]:
    """No stored facts."""
    del embedding, limit
    return []
