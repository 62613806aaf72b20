"""Mem0 as it comes, on pgvector: a library, so it is asked without HTTP, through a pipe."""

import asyncio
import json
import os
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.processes import ModelEndpoint
from bench.recall import mem0_worker
from bench.recall.locomo import Session
from bench.recall.measures import TOP
from bench.recall.subjects import Found, NotRememberedError
from kaos_dev import peer
from kaos_dev.model_server import CHAT_MODEL, EMBEDDING_MODEL

VERSION = "2.2.1"
DIMS = 384

_REQUIREMENTS = (f"mem0ai=={VERSION}", "psycopg[binary,pool]==3.3.9")
_MAX_LINE = 2**24


@dataclass(frozen=True)
class Mem0:
    """A running worker."""

    process: asyncio.subprocess.Process
    log: Path
    name: str = f"mem0-{VERSION}"

    async def remember(self, principal: str, sessions: Sequence[Session]) -> None:
        """Add all turns; each is stored when it is answered."""
        for session in sessions:
            messages = [{"role": "user", "content": turn.line} for turn in session.turns]
            added = await self.ask(messages=messages, user_id=principal, infer=False)
            if added != len(messages):
                raise NotRememberedError(f"{self.name} added {added} of {len(messages)} turns")

    async def search(self, principal: str, question: str) -> Found:
        """Search with its defaults."""
        began = time.perf_counter()
        texts = await self.ask(query=question, top_k=TOP, filters={"user_id": principal})
        return Found(texts, time.perf_counter() - began)

    async def ask(self, **arguments: Any) -> Any:
        """Send a line, and read one."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(arguments).encode() + b"\n")
        line = await self.process.stdout.readline()
        if not line:
            raise NotRememberedError(f"{self.name} ended:\n{self.log.read_text()[-2_000:]}")
        return json.loads(line)


@asynccontextmanager
async def mem0(dsn: str, models: ModelEndpoint, folder: Path) -> AsyncGenerator[Mem0]:
    """Mem0 in an environment of its own, ready."""
    python = await asyncio.to_thread(peer.environment, _REQUIREMENTS)
    log = folder / "mem0.log"
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "MEM0_TELEMETRY": "False",
        "MEM0_DIR": str(folder / "mem0-library"),
    }
    with log.open("wb") as errors:
        process = await asyncio.create_subprocess_exec(
            python,
            "-I",
            mem0_worker.__file__,
            env=environment,
            limit=_MAX_LINE,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=errors,
        )
    try:
        running = Mem0(process, log)
        await running.ask(**_configuration(dsn, models, folder))
        yield running
    finally:
        if process.returncode is None:
            process.kill()  # it holds nothing that is needed
        await process.wait()


def _configuration(dsn: str, models: ModelEndpoint, folder: Path) -> dict[str, Any]:
    endpoint = {"openai_base_url": models.url, "api_key": models.api_key}
    store = {
        "connection_string": dsn,
        "collection_name": "memories",
        "embedding_model_dims": DIMS,
    }
    return {
        "llm": {"provider": "openai", "config": {"model": CHAT_MODEL, **endpoint}},
        "embedder": {"provider": "openai", "config": {"model": EMBEDDING_MODEL, **endpoint}},
        "vector_store": {"provider": "pgvector", "config": store},
        "history_db_path": str(folder / "history.db"),
    }
