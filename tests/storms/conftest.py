"""What the storms run on: PostgreSQL, a model server, and processes of the service that may die."""

import os
import random
from collections.abc import Iterator

import pytest

from kaos_dev.embedded_postgres import EmbeddedPostgres
from kaos_dev.model_server import CHAT_MODEL, ModelServer

from ..service.conftest import (
    admin_dsn,
    directory,
    dsn,
    empty_dsn,
    make_storage,
    migrated,
    postgres,
    storage,
    where,
)

__all__ = [
    "admin_dsn",
    "directory",
    "dsn",
    "empty_dsn",
    "make_storage",
    "migrated",
    "postgres",
    "storage",
    "where",
]

MODEL_DIMS = 384


@pytest.fixture
def luck() -> random.Random:
    """Decides what happens when. To have it happen again: `STORM_SEED=<seed>`."""
    seed = int(os.environ.get("STORM_SEED") or random.randrange(2**32))
    print(f"STORM_SEED={seed}")
    return random.Random(seed)


@pytest.fixture
def backend() -> str:
    return "postgres"


@pytest.fixture
def models() -> Iterator[ModelServer]:
    with ModelServer() as server:
        yield server


@pytest.fixture
def admin_empty_dsn(postgres: EmbeddedPostgres, empty_dsn: str) -> str:
    """The database that no store had touched, for its superuser, who sees every row."""
    return postgres.dsn(empty_dsn.rpartition("/")[2])


@pytest.fixture
def environment(empty_dsn: str, models: ModelServer) -> dict[str, str]:
    """A store with a window of a few turns, all tiers on, and sessions that are idle soon."""
    return {
        "KAOS_MEMORY_STORAGE_TYPE": "external",
        "KAOS_MEMORY_EXTERNAL_DSN": empty_dsn,
        "KAOS_MEMORY_EXTERNAL_DIMS": str(MODEL_DIMS),
        "KAOS_MEMORY_MODELS_SUMMARIZATION_BASE_URL": models.url,
        "KAOS_MEMORY_MODELS_SUMMARIZATION_MODEL": CHAT_MODEL,
        "KAOS_MEMORY_MODELS_SUMMARIZATION_API_KEY": models.api_key,
        "KAOS_MEMORY_MODELS_EMBEDDING_BASE_URL": models.url,
        "KAOS_MEMORY_MODELS_EMBEDDING_MODEL": f"hash-{MODEL_DIMS}",
        "KAOS_MEMORY_MODELS_EMBEDDING_API_KEY": models.api_key,
        "KAOS_MEMORY_SHORT_TERM_TOKEN_BUDGET": "80",
        "KAOS_MEMORY_MEDIUM_TERM_ENABLED": "true",
        "KAOS_MEMORY_MEDIUM_TERM_DIGEST_RETENTION": "1000",
        "KAOS_MEMORY_LONG_TERM_EXTRACTION_IDLE_SECONDS": "1",
        "KAOS_MEMORY_MAX_READ_SCOPE": "user",
    }
