"""Faults on demand, and a record of what the models saw."""

import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

Endpoint = Literal["chat", "embeddings", "rerank"]


class Behaviour(BaseModel):
    """What the next calls of an endpoint meet instead of, or before, their usual answer.

    First the delay, then the wait, then the drop, the status, or the (changed) answer. The
    behaviours of an endpoint are a queue: the first that still has calls left and fits is used.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    endpoint: Endpoint
    times: Annotated[int, Field(ge=1)] | None = 1
    """For how many calls; None: for all, until the script is cleared."""
    containing: str = ""
    """Only for calls whose prompt (see `RecordedRequest`) contains this text."""
    delay_seconds: Annotated[float, Field(ge=0)] = 0
    hang: bool = False
    """Wait until released."""
    drop: bool = False
    """Close the connection in the middle of the answer."""
    status: Annotated[int, Field(ge=200, le=599)] | None = None
    """Answer with this status and `body`; without a body, with OpenAI's error for the status."""
    body: Any = None
    retry_after: str | None = None
    content: str | None = None
    """The raw text of the chat model's answer."""
    edited: tuple[re.Pattern[str], str] | None = None
    """What is replaced in the chat model's answer, and by what."""
    truncated: bool = False
    """Only half of the answer's text, with `finish_reason` `length`."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        of_chats = (self.content is not None, self.edited is not None, self.truncated)
        if self.endpoint != "chat" and any(of_chats):
            raise ValueError(
                "`content`, `edited` and `truncated` are for endpoint `chat`: use `body`"
            )
        if self.status is None and (self.body is not None or self.retry_after is not None):
            raise ValueError("`body` and `retry_after` need a `status`")
        return self


class Script:
    """The queue of behaviours; safe to change from another thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._queue: list[tuple[Behaviour, int | None]] = []

    def add(self, *behaviours: Behaviour) -> None:
        """Append to the queue."""
        with self._lock:
            self._queue += [(behaviour, behaviour.times) for behaviour in behaviours]

    def clear(self) -> None:
        """Forget what is left."""
        with self._lock:
            self._queue.clear()

    def take(self, endpoint: Endpoint, prompt: str) -> Behaviour | None:
        """Use up one call of the first behaviour that fits."""
        with self._lock:
            for index, (behaviour, left) in enumerate(self._queue):
                if behaviour.endpoint == endpoint and behaviour.containing in prompt:
                    if left == 1:
                        del self._queue[index]
                    elif left is not None:
                        self._queue[index] = (behaviour, left - 1)
                    return behaviour
            return None


@dataclass
class RecordedRequest:
    """A request as it came in."""

    endpoint: Endpoint
    body: Any
    """The parsed JSON; None if it was none."""
    prompt: str
    """All texts of the messages, the input, or query and documents, one after the other."""
    status: int | None = None
    """The status that it was answered with; None while it is being answered or was dropped."""


class Recorder:
    """All requests of the endpoints, in the order of their arrival."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._requests: list[RecordedRequest] = []

    def add(self, request: RecordedRequest) -> None:
        """Record a request."""
        with self._changed:
            self._requests.append(request)
            self._changed.notify_all()

    def all(self, endpoint: Endpoint | None = None) -> list[RecordedRequest]:
        """Return the requests so far."""
        with self._changed:
            return [r for r in self._requests if endpoint in {None, r.endpoint}]

    def clear(self) -> None:
        """Forget all requests."""
        with self._changed:
            self._requests.clear()

    def wait_for(
        self, condition: Callable[[list[RecordedRequest]], bool], timeout: float = 10
    ) -> list[RecordedRequest]:
        """Block until the condition holds for the requests so far, and return them.

        Raises:
            TimeoutError: It does not hold in time (seconds).
        """
        deadline = time.monotonic() + timeout
        with self._changed:
            while not condition(self._requests):
                if not self._changed.wait(deadline - time.monotonic()):
                    raise TimeoutError(f"not met by {len(self._requests)} requests: {condition}")
            return list(self._requests)
