"""Token counts, offline: the table is in the wheel of `bpe-openai`."""

import importlib.util
import threading
from importlib.machinery import PathFinder
from typing import Any, Protocol, cast

from kaos_memory.engine.plain_text import clean

ENCODING = "cl100k_base"
"""Takes 33 MB where `o200k_base` takes 66, and counts other languages than English higher, so that
a budget rather holds for models with smaller vocabularies."""

_MODULE = "_bindings"

_loading = threading.Lock()
_tokenizer: "_Tokenizer | None" = None


class _Tokenizer(Protocol):
    def count(self, text: str) -> int: ...


def count_tokens(text: str) -> int:
    """The tokens of a text; at least 1 where there is any. Takes milliseconds, never raises.

    Special tokens such as `<|endoftext|>` are ordinary text. Lone surrogates count as the
    replacement character, as they are stored.
    """
    if not text:
        return 0
    count = (_tokenizer or _load()).count
    try:
        return max(1, count(text))
    except UnicodeEncodeError:
        return max(1, count(clean(text)))


def warm_up() -> None:
    """Load the table, which the first count does otherwise (30 ms)."""
    count_tokens("warm")


def _load() -> _Tokenizer:
    """The compiled tokenizer, without its Python package: that builds all tables as dicts (68 MB).

    Once per process, hence the lock: the compiled module refuses to be initialised again.
    """
    global _tokenizer  # noqa: PLW0603 - one table per process
    with _loading:
        if _tokenizer is None:
            package = importlib.util.find_spec("bpe_openai")
            folders = list(package.submodule_search_locations or ()) if package else []
            spec = PathFinder.find_spec(_MODULE, folders)
            if spec is None or spec.loader is None:
                raise ImportError(
                    "bpe-openai is not installed; install kaos-memorystore[service]",
                    name="bpe_openai",
                )
            module: Any = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
            _tokenizer = module.tokenizer_for_encoding(ENCODING)
        return cast("_Tokenizer", _tokenizer)
