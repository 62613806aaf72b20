"""Embeddings as they are stored: of length 1, in half precision, one after the other."""

import heapq
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from kaos_memory.engine.protocols import ModelError
from kaos_memory.storage.local.database import Connection, value, where
from kaos_memory.tiers.reach import Owners

_STORED: Final = np.dtype("<f2")
_BATCH: Final = 4_096
_OF_OWNERS: Final = """
    SELECT v.number, v.embedding FROM facts f JOIN vectors v ON v.number = f.number
    WHERE {condition}
"""
_DIMS: Final = "SELECT value FROM meta WHERE key = 'embedding_dims'"

Floats = npt.NDArray[np.floating[Any]]


def encode(embedding: Sequence[float]) -> bytes:
    """An embedding as it is stored."""
    return unit(embedding).astype(_STORED).tobytes()


def decode(stored: Sequence[bytes]) -> Floats:
    """Stored embeddings, one in each row. There is at least one."""
    return np.frombuffer(b"".join(stored), _STORED).reshape(len(stored), -1).astype(np.float32)


def cosines(stored: Sequence[bytes], embedding: Sequence[float]) -> Floats:
    """The similarity of each stored embedding to this one."""
    return decode(stored) @ unit(embedding) if stored else np.zeros(0, np.float32)


def nearest(
    connection: Connection, owners: Owners, embedding: Sequence[float], most: int
) -> list[int]:
    """The numbers of the owners' nearest facts. Compares all, some at a time."""
    check_dims(connection, embedding)
    condition, named = where(owners, "f")
    rows = connection.execute(_OF_OWNERS.replace("{condition}", condition), named)
    best: list[tuple[float, int]] = []
    while batch := rows.fetchmany(_BATCH):
        scores = cosines([stored for _, stored in batch], embedding).tolist()
        scored = zip(scores, (number for number, _ in batch), strict=True)
        best = heapq.nlargest(most, [*best, *scored])
    return [number for _, number in best]


def unit(embedding: Sequence[float]) -> Floats:
    """An embedding scaled to length 1; one of length 0 is similar to nothing."""
    vector = np.asarray(embedding, np.float32)
    length = float(np.linalg.norm(vector))
    return vector / length if length > 0 else vector


def dims(connection: Connection) -> int | None:
    """The length of all vectors of the store; None before the first one."""
    found = value(connection, _DIMS, {})
    return None if found is None else int(found)


def learn_dims(connection: Connection, embedding: Sequence[float]) -> None:
    """Hold to the first vector's length from then on.

    Raises:
        ModelError: this one has another.
    """
    check_dims(connection, embedding)
    new = ("embedding_dims", str(len(embedding)))
    connection.execute("INSERT OR IGNORE INTO meta VALUES (?, ?)", new)


def check_dims(connection: Connection, embedding: Sequence[float]) -> None:
    """Check that a vector can be compared with those of the store.

    Raises:
        ModelError: it has another length.
    """
    known = dims(connection)
    if known is not None and known != len(embedding):
        raise ModelError(
            f"the embedding model answers with vectors of {len(embedding)} dimensions where this "
            f"store has {known}; set models.embedding back, or use another storage.local.path"
        )
