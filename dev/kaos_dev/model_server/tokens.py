"""Token counts as OpenAI bills them, from a table that needs no network."""

import warnings
from collections.abc import Iterable
from functools import cache

with warnings.catch_warnings():
    # bpe-openai 0.1.4 reads its tables by a call that Python 3.11 and 3.12 call deprecated.
    warnings.filterwarnings("ignore", "open_binary is deprecated", DeprecationWarning)
    import bpe_openai


@cache
def _encoding(name: str) -> bpe_openai.Encoding:
    return bpe_openai.get_encoding(name)


def count_for_embedding(text: str) -> int:
    """Count the tokens of a text to embed."""
    return len(_encoding("cl100k_base").encode_ordinary(text))


def count_for_chat(texts: Iterable[str]) -> int:
    """Count the tokens of a prompt: three around each message, three before the answer."""
    encoding = _encoding("o200k_base")
    return 3 + sum(4 + len(encoding.encode_ordinary(text)) for text in texts)


def cut(text: str, limit: int) -> tuple[str, int]:
    """Return at most `limit` tokens of the text, and how many these are."""
    encoding = _encoding("o200k_base")
    tokens = encoding.encode_ordinary(text)
    if len(tokens) <= limit:
        return text, len(tokens)
    return encoding.decode_bytes(tokens[:limit]).decode(errors="ignore"), limit
