"""Our service as a process, and the published client in an interpreter of its own."""

import asyncio
import json
import os
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from kaos_dev.embedded_postgres import EmbeddedPostgres
from kaos_dev.model_server import CHAT_MODEL, ModelServer
from kaos_dev.peer import CLIENT, environment, find_python
from kaos_dev.service_process import ServiceProcess

SCRIPT = Path(__file__).with_name("published_client.py")

Call = Callable[..., list[Any]]
Settled = Callable[[], Awaitable[None]]


@pytest.fixture(scope="session")
def postgres() -> Iterator[EmbeddedPostgres]:
    with EmbeddedPostgres(fsync=False) as server:
        server.create_owner("kaos", "not-a-secret")
        server.create_database("conformance", owner="kaos")
        yield server


@pytest.fixture(scope="session")
def service(
    postgres: EmbeddedPostgres, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServiceProcess]:
    """A store whose window overflows after a few sentences, with all tiers on."""
    with ModelServer() as models:
        environ = {
            "KAOS_MEMORY_STORAGE_TYPE": "external",
            "KAOS_MEMORY_EXTERNAL_DSN": postgres.dsn("conformance", "kaos"),
            "KAOS_MEMORY_EXTERNAL_DIMS": "384",
            "KAOS_MEMORY_SHORT_TERM_TOKEN_BUDGET": "80",
            "KAOS_MEMORY_MEDIUM_TERM_ENABLED": "true",
        }
        for role, model in (("SUMMARIZATION", CHAT_MODEL), ("EMBEDDING", "hash-384")):
            environ |= {
                f"KAOS_MEMORY_MODELS_{role}_BASE_URL": models.url,
                f"KAOS_MEMORY_MODELS_{role}_MODEL": model,
                f"KAOS_MEMORY_MODELS_{role}_API_KEY": models.api_key,
            }
        log = tmp_path_factory.mktemp("conformance") / "service.log"
        with ServiceProcess(environ, log) as process:
            yield process


@pytest.fixture
def settled(postgres: EmbeddedPostgres) -> Settled:
    """Wait until no background work is due or running: every evicted turn is digest and facts."""

    async def wait() -> None:
        async with asyncio.timeout(20):
            while await asyncio.to_thread(  # noqa: ASYNC110 - another process ends it
                postgres.execute,
                "SELECT 1 FROM kaos_memory.work WHERE NOT waiting LIMIT 1",
                "conformance",
            ):
                await asyncio.sleep(0.02)

    return wait


@pytest.fixture
async def http(service: ServiceProcess) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=service.url, timeout=30) as client:
        yield client


@pytest.fixture(scope="session")
def published() -> Path:
    """The interpreter that has the published client, and nothing of ours."""
    if find_python() is None:
        pytest.skip("the published client needs Python 3.12, which is not on this machine")
    return environment(CLIENT)


@pytest.fixture(scope="session")
def call(published: Path, service: ServiceProcess) -> Iterator[Call]:
    """Make calls with the published client, in order; returns their results."""
    with subprocess.Popen(
        # Isolated: neither the checkout nor PYTHON* variables reach it.
        [published, "-I", SCRIPT, service.url],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={"PATH": os.environ["PATH"]},
    ) as client:
        calls_in, results_out = client.stdin, client.stdout
        assert calls_in is not None
        assert results_out is not None

        def run(*calls: dict[str, Any]) -> list[Any]:
            calls_in.write(f"{json.dumps(calls)}\n")
            calls_in.flush()
            return json.loads(results_out.readline())

        yield run
        calls_in.close()
        assert client.wait(timeout=10) == 0
