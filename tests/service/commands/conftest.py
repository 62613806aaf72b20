"""Commands as an operator runs them: the real command line on a real store."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pytest
from typer.testing import CliRunner

from kaos_memory.commands.app import app
from kaos_memory.settings import ENV_PREFIX
from kaos_memory.storage.protocol import Storage

from ..conftest import DIMS, IDENTITY, StorageFactory


@dataclass(frozen=True)
class Ended:
    """What a command left behind."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Run = Callable[..., Awaitable[Ended]]


@pytest.fixture
def environment(dsn: str) -> dict[str, str]:
    """The settings of a service on the test's store."""
    given = {
        "STORE_NAME": IDENTITY.store,
        "STORAGE_TYPE": "external",
        "EXTERNAL_DSN": dsn,
        "EXTERNAL_DIMS": str(DIMS),
        "MODELS_SUMMARIZATION_BASE_URL": "http://127.0.0.1:1/v1",
        "MODELS_SUMMARIZATION_MODEL": "writer",
        "MODELS_EMBEDDING_BASE_URL": "http://127.0.0.1:1/v1",
        "MODELS_EMBEDDING_MODEL": IDENTITY.embedding_model,
    }
    return {ENV_PREFIX + name: value for name, value in given.items()}


@pytest.fixture
def run(environment: Mapping[str, str]) -> Run:
    """Run a command in this process. Its standard input is no terminal."""

    async def run(*arguments: str, given: str = "", **changed: str | None) -> Ended:
        everything = {**environment, **changed}  # None: not set
        ended = await asyncio.to_thread(
            CliRunner().invoke, app, arguments, input=given, env=everything
        )
        if ended.exception is not None and not isinstance(ended.exception, SystemExit):
            raise ended.exception
        return Ended(ended.exit_code, ended.stdout, ended.stderr)

    return run


@pytest.fixture
async def storage(make_storage: StorageFactory) -> AsyncIterator[Storage]:
    """The same store, beside the command: marks 100 and 50 tokens, all tiers on."""
    opened = make_storage()
    await opened.open()
    yield opened
    await opened.close()
