"""Chat completions on the wire: whole or as a stream of server-sent events."""

import hashlib
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import orjson

from kaos_dev.model_server.answers import answer
from kaos_dev.model_server.errors import ApiError
from kaos_dev.model_server.models import ChatModel
from kaos_dev.model_server.requests import ChatRequest
from kaos_dev.model_server.script import Behaviour
from kaos_dev.model_server.tokens import count_for_chat, cut


@dataclass(frozen=True)
class Completion:
    """One answer of the chat model."""

    id: str
    model: str
    content: str
    finish_reason: Literal["stop", "length"]
    prompt_tokens: int
    completion_tokens: int

    def body(self) -> dict[str, Any]:
        """The answer in one piece."""
        message = {"role": "assistant", "content": self.content, "refusal": None}
        choice = {
            "index": 0,
            "message": message,
            "logprobs": None,
            "finish_reason": self.finish_reason,
        }
        return {**self._envelope("chat.completion"), "choices": [choice], "usage": self._usage()}

    def events(self, *, include_usage: bool) -> Iterator[bytes]:
        """The answer word by word."""
        envelope = self._envelope("chat.completion.chunk")
        deltas: list[tuple[dict[str, str], str | None]] = [({"role": "assistant"}, None)]
        deltas += [({"content": w}, None) for w in re.findall(r"\s*\S+\s*", self.content)]
        deltas.append(({}, self.finish_reason))
        for delta, finish_reason in deltas:
            choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
            yield _event({**envelope, "choices": [choice]})
        if include_usage:
            yield _event({**envelope, "choices": [], "usage": self._usage()})
        yield b"data: [DONE]\n\n"

    def _envelope(self, kind: str) -> dict[str, Any]:
        created = int(time.time())
        return {"id": self.id, "object": kind, "created": created, "model": self.model}

    def _usage(self) -> dict[str, int]:
        return {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
            "total_tokens": self.prompt_tokens + self.completion_tokens,
        }


def complete(model: ChatModel, request: ChatRequest, fault: Behaviour | None) -> Completion:
    """Answer a chat.

    Raises:
        ApiError: The prompt, or what is asked for, is longer than the model allows.
    """
    texts = [message.text for message in request.messages]
    prompt_tokens = count_for_chat(texts)
    if prompt_tokens > model.context_length:
        raise ApiError(
            f"This model's maximum context length is {model.context_length} tokens. However, your "
            f"messages resulted in {prompt_tokens} tokens. Please reduce the length of the "
            "messages.",
            param="messages",
            code="context_length_exceeded",
        )
    limit = request.max_completion_tokens or request.max_tokens or model.max_output
    if limit > model.max_output:
        raise ApiError(
            f"max_tokens is too large: {limit}. This model supports at most {model.max_output} "
            f"completion tokens, whereas you provided {limit}.",
            param="max_tokens",
            code="invalid_value",
        )
    whole = answer(request.messages, as_json=request.wants_json)
    if fault is not None and fault.content is not None:
        whole = fault.content
    if fault is not None and fault.edited is not None:
        pattern, replacement = fault.edited
        whole = pattern.sub(replacement, whole)
    given = whole[: len(whole) // 2] if fault is not None and fault.truncated else whole
    content, completion_tokens = cut(given, limit)
    return Completion(
        id="chatcmpl-" + hashlib.sha256("\0".join([model.name, *texts]).encode()).hexdigest()[:24],
        model=model.name,
        content=content,
        finish_reason="stop" if content == whole else "length",
        prompt_tokens=prompt_tokens,
        completion_tokens=completion_tokens,
    )


def _event(data: dict[str, Any]) -> bytes:
    return b"data: " + orjson.dumps(data) + b"\n\n"
