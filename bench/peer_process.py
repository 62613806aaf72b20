"""The published service as a process, as its package starts it."""

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from bench.processes import ModelEndpoint, stop, wait_until_answered
from kaos_dev import peer
from kaos_dev.service_process import free_port

# It downloads tiktoken's table when it is imported, unless this folder of litellm's wheel is the
# cache; so the wheel is installed beside it, without its dependencies.
_LITELLM = "litellm==1.110.2"
_TIKTOKEN_TABLES = "site-packages/litellm/litellm_core_utils/tokenizers"


class PeerProcess:
    """The published service on external storage, with defaults for all that is not given."""

    def __init__(
        self,
        dsn: str,
        models: ModelEndpoint,
        folder: Path,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self.port = free_port()
        self._python = peer.environment(peer.SERVICE, without_dependencies=[_LITELLM])
        library = f"lib/python{'.'.join(map(str, peer.PYTHON_VERSION))}"
        self._log = folder / "published.log"
        self._environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "KAOS_MEMORY_STORAGE_TYPE": "external",
            "KAOS_MEMORY_EXTERNAL_DSN": dsn,
            "KAOS_MEMORY_MODEL_BASE_URL": models.url,
            "KAOS_MEMORY_MODEL_API_KEY": models.api_key,
            "KAOS_MEMORY_HOST": "127.0.0.1",
            "KAOS_MEMORY_PORT": str(self.port),
            "TIKTOKEN_CACHE_DIR": str(self._python.parent.parent / library / _TIKTOKEN_TABLES),
            # Its engine would call home.
            "MEM0_TELEMETRY": "False",
            "MEM0_DIR": str(folder / "mem0"),
            **(settings or {}),
        }
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """Its process id."""
        assert self._process is not None
        return self._process.pid

    def __enter__(self) -> Self:
        with self._log.open("wb") as output:
            self._process = subprocess.Popen(
                [self._python, "-I", "-m", "kaos_memory.app"],
                env=self._environment,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        try:
            url = f"http://127.0.0.1:{self.port}/readyz"
            wait_until_answered(url, self._process, self._log)
        except BaseException:
            stop(self._process)
            raise
        return self

    def __exit__(
        self,
        _type: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        if self._process is not None:
            stop(self._process)
