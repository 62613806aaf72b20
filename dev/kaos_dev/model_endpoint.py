"""Where the demo's models answer: the user's endpoint, or the bundled server."""

import asyncio
import os
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from urllib.parse import urlsplit

import orjson
from pydantic import SecretStr, ValidationError

from kaos_dev.model_server import ModelServer
from kaos_dev.model_server.models import CHAT_MODEL, EMBEDDING_MODEL
from kaos_memory.engine.endpoint import Endpoint
from kaos_memory.engine.protocols import ModelError
from kaos_memory.settings import Model, SettingsError, describe

VARIABLES = "OPENAI_BASE_URL, OPENAI_API_KEY, OPENAI_CHAT_MODEL, OPENAI_EMBEDDING_MODEL"
_NO_KEY = "no-key"
"""Sent where the user has no key: servers on one's own machine ask for none, and read none."""
_SECONDS = 30.0
_MOST_BYTES = 1_000_000


class ModelEndpointError(RuntimeError):
    """The user's endpoint does not do; the message says why, and what to check."""


@dataclass(frozen=True)
class ModelEndpoint:
    """An OpenAI-compatible endpoint and its models."""

    url: str
    api_key: str
    chat_model: str = CHAT_MODEL
    embedding_model: str = EMBEDDING_MODEL
    embedding_dims: int | None = None
    """Known where the endpoint was asked; else the stack's file says it."""

    @property
    def bundled(self) -> bool:
        """Whether it is the server that comes with this package."""
        return self.embedding_dims is None

    def __str__(self) -> str:
        """One line for the user, without the key."""
        if self.bundled:
            return (
                f"No OPENAI_BASE_URL is set: {CHAT_MODEL} (rules, no language model) and "
                f"{EMBEDDING_MODEL} (a real embedder)."
            )
        return (
            f"{self.chat_model} (OPENAI_CHAT_MODEL) and {self.embedding_model} "
            f"(OPENAI_EMBEDDING_MODEL, {self.embedding_dims} dimensions)."
        )


@contextmanager
def model_endpoint(progress: Callable[[str], None]) -> Generator[ModelEndpoint]:
    """The user's endpoint where the usual variables name one, else the bundled server.

    Raises:
        ModelEndpointError: the user's endpoint embeds nothing.
    """
    url = os.environ.get("OPENAI_BASE_URL")
    if url:
        progress(f"Asking the model endpoint of OPENAI_BASE_URL ({urlsplit(url).hostname})")
        embedding = os.environ.get("OPENAI_EMBEDDING_MODEL") or "text-embedding-3-small"
        key = os.environ.get("OPENAI_API_KEY") or _NO_KEY
        yield ModelEndpoint(
            url,
            key,
            chat_model=os.environ.get("OPENAI_CHAT_MODEL") or "gpt-4o-mini",
            embedding_model=embedding,
            embedding_dims=asyncio.run(_measured_dims(url, key, embedding)),
        )
        return
    progress("Starting the bundled model server")
    with ModelServer() as server:
        yield ModelEndpoint(server.url, server.api_key)


async def _measured_dims(url: str, key: str, model: str) -> int:
    """The length of the model's vectors, which differs by model and is listed nowhere."""
    try:
        settings = Model(base_url=url, model=model, api_key=SecretStr(key))
        endpoint = Endpoint("embedding", settings, seconds=_SECONDS, most_bytes=_MOST_BYTES)
        try:
            answer = await endpoint.post("embeddings", {"model": model, "input": ["dimensions"]})
            return len(orjson.loads(answer)["data"][0]["embedding"])
        finally:
            await endpoint.aclose()
    except (ModelError, SettingsError) as error:
        reason = str(error)
    except ValidationError as error:
        reason = describe(error, {"base_url": url, "model": model})[0]
    except (ValueError, LookupError, TypeError):
        reason = "the embedding endpoint did not answer with embeddings"
    raise ModelEndpointError(f"{reason}; check {VARIABLES}")
