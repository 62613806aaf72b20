"""Mem0 as a library: loaded on first use, silent, and without anything that its constructor makes.

Its import takes 60 to 80 MB and a second, hence late; on a thread: the event loop waits 40 ms.
"""

import atexit
import importlib
import logging
import os
import shutil
import tempfile
import threading
from functools import cache
from types import SimpleNamespace
from typing import Any

from kaos_memory.engine.protocols import ModelError

_loading = threading.Lock()


class NoHistory:
    """In place of Mem0's history database, whose last messages it would show to later calls."""

    def get_last_messages(self, *_: object, **__: object) -> list[dict[str, Any]]:
        """No earlier messages."""
        return []

    def save_messages(self, *_: object, **__: object) -> None:
        """Keep nothing."""

    def batch_add_history(self, *_: object, **__: object) -> None:
        """Keep nothing."""

    def add_history(self, *_: object, **__: object) -> None:
        """Keep nothing."""


def new_memory(*, llm: Any, embedder: Any, store: Any, instructions: str) -> Any:
    """A Mem0 `Memory` for one call, made of the given parts.

    Its constructor is left out: it opens a history database and builds clients of its own, the
    language model's with a key and a URL from the environment. What `add` reads is set here, and
    the tests run it for real, so that an update of Mem0 which reads more shows at once.

    Raises:
        ModelError: Mem0 cannot be loaded.
    """
    memory_class: Any = _load().Memory
    memory = object.__new__(memory_class)
    memory.llm = llm
    memory.embedding_model = embedder
    memory.vector_store = store
    memory.db = NoHistory()
    memory.custom_instructions = instructions
    memory.collection_name = "facts"
    memory.api_version = "v1.1"
    memory.reranker = None
    memory.config = SimpleNamespace(llm=SimpleNamespace(config={}))
    return memory


def _load() -> Any:
    with _loading:
        return _prepared()


@cache
def _prepared() -> Any:
    """Mem0's module, made harmless, also where somebody else imported it before."""
    os.environ["MEM0_TELEMETRY"] = "False"  # read at import; else threads phone home
    if not os.environ.get("MEM0_DIR"):
        folder = tempfile.mkdtemp(prefix="mem0-")
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        os.environ["MEM0_DIR"] = folder
    # Its log lines quote facts.
    logging.getLogger("mem0").setLevel(logging.CRITICAL + 1)
    try:
        module = importlib.import_module("mem0.memory.main")
        languages: Any = importlib.import_module("mem0.utils.spacy_models")
    except (OSError, ImportError) as error:
        raise ModelError(
            f"Mem0 cannot be loaded ({type(error).__name__}); make MEM0_DIR a writable folder"
        ) from error
    # Where spaCy is installed by chance, Mem0 would download a model and keep entities.
    languages._load_failed_full = languages._load_failed_lemma = True  # noqa: SLF001
    return module
