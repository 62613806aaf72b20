"""All that runs for one part of the benchmark: fresh each time, so that nothing is in a cache."""

import tempfile
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import asyncpg

from bench.load import Address
from bench.peer_process import PeerProcess
from bench.processes import ModelEndpoint, model_server
from bench.recall.mem0_process import DIMS, mem0
from bench.recall.subjects import Ours, Published, Subject
from kaos_dev.embedded_postgres import EmbeddedPostgres
from kaos_dev.model_server import CHAT_MODEL, EMBEDDING_MODEL
from kaos_dev.service_process import ServiceProcess

_LOGIN = "bench"


class Scene:
    """A database server with a folder for logs, on which subjects are started."""

    def __init__(self, stack: AsyncExitStack) -> None:
        self._stack = stack
        self._folder = Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="kaos-bench-recall-"))
        )
        self._postgres = stack.enter_context(EmbeddedPostgres())
        self._postgres.create_owner(_LOGIN, "not-a-secret")

    async def everyone(self) -> Sequence[Subject]:
        """All that are compared."""
        return [await self.ours(), await self._published(), await self._mem0()]

    async def ours(self, *, infer: bool = False) -> Ours:
        """Our service; where it extracts, a second after the last turn of a session."""
        models = self._models("ours")
        environment = {
            "KAOS_MEMORY_STORAGE_TYPE": "external",
            "KAOS_MEMORY_EXTERNAL_DSN": self._database("ours"),
            "KAOS_MEMORY_EXTERNAL_DIMS": str(DIMS),
        }
        for role, model in (("SUMMARIZATION", CHAT_MODEL), ("EMBEDDING", EMBEDDING_MODEL)):
            environment |= {
                f"KAOS_MEMORY_MODELS_{role}_BASE_URL": models.url,
                f"KAOS_MEMORY_MODELS_{role}_MODEL": model,
                f"KAOS_MEMORY_MODELS_{role}_API_KEY": models.api_key,
            }
        if infer:
            environment["KAOS_MEMORY_LONG_TERM_EXTRACTION_IDLE_SECONDS"] = "1"
        process = ServiceProcess(environment, self._folder / "ours.log")
        self._stack.enter_context(process)
        return Ours(Address("127.0.0.1", process.port), await self._admin("ours"), infer)

    async def _published(self) -> Published:
        process = PeerProcess(
            self._database("published"),
            self._models("published"),
            self._folder,
            {
                "KAOS_MEMORY_EMBEDDING_MODEL": EMBEDDING_MODEL,
                "KAOS_MEMORY_SUMMARIZATION_MODEL": CHAT_MODEL,
                "KAOS_MEMORY_EXTERNAL_DIMS": str(DIMS),
                "KAOS_MEMORY_TOKEN_BUDGET": "2",
            },
        )
        self._stack.enter_context(process)
        return Published(Address("127.0.0.1", process.port), await self._admin("published"))

    async def _mem0(self) -> Subject:
        worker = mem0(self._database("mem0"), self._models("mem0"), self._folder)
        return await self._stack.enter_async_context(worker)

    def _models(self, subject: str) -> ModelEndpoint:
        """A model server of its own: it remembers vectors, also those of others' texts."""
        log = self._folder / f"{subject}-models.log"
        return self._stack.enter_context(model_server(log))

    def _database(self, name: str) -> str:
        self._postgres.create_database(name, owner=_LOGIN)
        return self._postgres.dsn(name, _LOGIN)

    async def _admin(self, database: str) -> asyncpg.Connection:
        admin = await asyncpg.connect(self._postgres.dsn(database))
        self._stack.push_async_callback(admin.close)
        return admin


@asynccontextmanager
async def scene() -> AsyncGenerator[Scene]:
    """A fresh scene; all that was started on it ends with it."""
    async with AsyncExitStack() as stack:
        yield Scene(stack)
