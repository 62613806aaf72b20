from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import httpx
import openai
import pytest

from kaos_dev.model_server import ModelServer


@pytest.fixture(scope="session")
def running_models() -> Iterator[ModelServer]:
    with ModelServer() as server:
        yield server


@pytest.fixture
def models(running_models: ModelServer) -> Iterator[ModelServer]:
    running_models.reset()
    yield running_models
    running_models.reset()


@pytest.fixture(scope="session")
async def client(running_models: ModelServer) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(
        base_url=running_models.url, api_key=running_models.api_key, max_retries=0
    ) as client:
        yield client


Post = Callable[[str, Any], Awaitable[tuple[int, dict[str, Any]]]]


@pytest.fixture(scope="session")
async def post(running_models: ModelServer) -> AsyncIterator[Post]:
    """Send a body that the openai client would not, and return status and error."""
    headers = {"authorization": f"Bearer {running_models.api_key}"}
    async with httpx.AsyncClient(base_url=running_models.url, headers=headers) as client:

        async def send(path: str, body: Any) -> tuple[int, dict[str, Any]]:
            answer = await client.post(path, json=body)
            return answer.status_code, answer.json()["error"]

        yield send
