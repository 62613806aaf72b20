"""The published service as a process, as its package starts it."""

import os
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from bench.processes import ModelEndpoint, PlainProcess
from kaos_dev import peer
from kaos_dev.service_process import free_port

# It downloads tiktoken's table when it is imported, unless this folder of litellm's wheel is the
# cache; so the wheel is installed beside it, without its dependencies.
_LITELLM = "litellm==1.110.2"
_TIKTOKEN_TABLES = "site-packages/litellm/litellm_core_utils/tokenizers"


class PeerProcess(PlainProcess):
    """The published service on external storage, with defaults for all that is not given.

    As a context it is started, ready, and stopped at the end.

    Args:
        dsn: Its database.
        models: Its models.
        folder: Its home, and where its log is.
        settings: More of its variables.
    """

    def __init__(
        self,
        dsn: str,
        models: ModelEndpoint,
        folder: Path,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        port = free_port()
        python = peer.environment(peer.SERVICE, without_dependencies=[_LITELLM])
        library = f"lib/python{'.'.join(map(str, peer.PYTHON_VERSION))}"
        folder.mkdir(exist_ok=True)
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            # Its engine keeps a history there.
            "TMPDIR": str(folder),
            "KAOS_MEMORY_STORAGE_TYPE": "external",
            "KAOS_MEMORY_EXTERNAL_DSN": dsn,
            "KAOS_MEMORY_MODEL_BASE_URL": models.url,
            "KAOS_MEMORY_MODEL_API_KEY": models.api_key,
            "KAOS_MEMORY_HOST": "127.0.0.1",
            "KAOS_MEMORY_PORT": str(port),
            "TIKTOKEN_CACHE_DIR": str(python.parent.parent / library / _TIKTOKEN_TABLES),
            # Its engine would call home.
            "MEM0_TELEMETRY": "False",
            "MEM0_DIR": str(folder / "mem0"),
            **(settings or {}),
        }
        command = [str(python), "-I", "-m", "kaos_memory.app"]
        super().__init__(command, environment, folder / "published.log", port)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        _type: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self.stop()
