"""The service as a process of its own, on a real PostgreSQL, with a model server."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import httpx
import pytest

from kaos_dev.embedded_postgres import EmbeddedPostgres
from kaos_dev.model_server import ModelServer
from kaos_dev.service_process import ServiceProcess

OWNER = "kaos"
_number = itertools.count()


@pytest.fixture(scope="session")
def postgres() -> Iterator[EmbeddedPostgres]:
    with EmbeddedPostgres(fsync=False) as server:
        server.create_owner(OWNER, "not-a-secret")
        yield server


@pytest.fixture(scope="session")
def models() -> Iterator[ModelServer]:
    with ModelServer() as server:
        yield server


@pytest.fixture
def database(postgres: EmbeddedPostgres) -> Iterator[str]:
    name = f"whole_{next(_number)}"
    postgres.create_database(name, owner=OWNER)
    yield name
    postgres.drop_database(name)


@pytest.fixture
def admin_dsn(postgres: EmbeddedPostgres, database: str) -> str:
    return postgres.dsn(database)


@pytest.fixture
def environment(postgres: EmbeddedPostgres, database: str, models: ModelServer) -> dict[str, str]:
    """A store with a small window and all tiers on."""
    models.reset()
    return store_environment(postgres.dsn(database, OWNER), models)


def store_environment(dsn: str, models: ModelServer) -> dict[str, str]:
    """The variables of a store in a database, with a window of 256 tokens and all tiers on."""
    return {
        "KAOS_MEMORY_STORAGE_TYPE": "external",
        "KAOS_MEMORY_EXTERNAL_DSN": dsn,
        "KAOS_MEMORY_EXTERNAL_DIMS": "384",
        "KAOS_MEMORY_MODELS_SUMMARIZATION_BASE_URL": models.url,
        "KAOS_MEMORY_MODELS_SUMMARIZATION_MODEL": "kaos-deterministic",
        "KAOS_MEMORY_MODELS_SUMMARIZATION_API_KEY": models.api_key,
        "KAOS_MEMORY_MODELS_EMBEDDING_BASE_URL": models.url,
        "KAOS_MEMORY_MODELS_EMBEDDING_MODEL": "hash-384",
        "KAOS_MEMORY_MODELS_EMBEDDING_API_KEY": models.api_key,
        "KAOS_MEMORY_SHORT_TERM_TOKEN_BUDGET": "256",
        "KAOS_MEMORY_MEDIUM_TERM_ENABLED": "true",
        "KAOS_MEMORY_MAX_READ_SCOPE": "user",
    }


@pytest.fixture
def service(environment: dict[str, str], tmp_path: Path) -> Iterator[ServiceProcess]:
    with ServiceProcess(environment, tmp_path / "service.log") as process:
        yield process


@pytest.fixture
async def client(service: ServiceProcess) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=service.url, timeout=30) as opened:
        yield opened


async def until(true: Callable[[], Awaitable[bool]], seconds: float = 60) -> None:
    """Wait for a condition that background work brings about."""
    async with asyncio.timeout(seconds):
        while not await true():  # noqa: ASYNC110 - another process brings it about
            await asyncio.sleep(0.05)
