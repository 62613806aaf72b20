"""Facts as one row of packed columns: all that ranking needs, without a record for each."""

from typing import Any, Final

import asyncpg
import numpy as np
import numpy.typing as npt

from kaos_memory.tiers.lexical import MAX_TERMS
from kaos_memory.tiers.ranking import LEAST_TERMS, TERMS_COMPARED, Candidates

# An array is sent as it is built, at a third of the cost of joining the numbers' bytes. Four
# small numbers travel as one of 31 + 18 + 11 + 3 bits; in SQL, `<<` binds no closer than `|`.
_PACKED: Final = """
    array_send(array_agg(f.id)) AS ids,
    array_agg(f.principal) AS principals,
    string_agg(f.hash, '') AS hashes,
    array_send(array_agg(
        hashtextextended(f.session, hashtextextended(f.agent, hashtextextended(f.principal, 0)))
    )) AS conversations,
    array_send(array_agg(
        (CASE WHEN f.first_position = f.last_position THEN f.first_position ELSE 0 END)::int8 << 32
        | (least(f.words, 262143)::int8 << 14)
        | (least(octet_length(f.terms) / 4, {each})::int8 << 3)
        | f.cues::int8
    )) AS numbers,
    string_agg(substring(f.terms, 1, 4 * {each}), '') AS terms,
    array_agg(f.speaker) AS speakers,
    array_send(array_agg(f.said_at)) AS said
"""
_TERMS_OF_EACH: Final = (
    f"greatest({LEAST_TERMS}, least({MAX_TERMS}, {TERMS_COMPARED} / greatest(1, {{facts}})))::int"
)
DISTANCES: Final = "array_send(array_agg(f.embedding <=> {question})) AS distances"
NO_DISTANCES: Final = "NULL::bytea AS distances"

_ARRAY_HEADER: Final = 20
"""Bytes before the entries of an array of one dimension; each entry follows its size."""
_DAY: Final = 86_400_000_000
_EPOCH: Final = 10_957
"""Days from 1970 to 2000, where PostgreSQL's time begins; it counts microseconds."""


def packed(terms_of_each: str) -> str:
    """The columns that ranking needs, with at most so many terms of each fact."""
    return _PACKED.replace("{each}", terms_of_each)


def terms_of_each(facts: str) -> str:
    """How many terms of each fact count where so many are compared, as `ranking` has it."""
    return _TERMS_OF_EACH.replace("{facts}", facts)


def unpack(row: asyncpg.Record) -> Candidates:
    """The facts of a row as `packed`, distances or none, and which are `sampled`, if not all."""
    numbers, said = _integers(row["numbers"]), _integers(row["said"])
    names: dict[str, int] = {}
    speakers = [names.setdefault(speaker, len(names)) for speaker in row["speakers"]]
    _, conversations = np.unique(_integers(row["conversations"]), return_inverse=True)
    return Candidates(
        ids=_entries(row["ids"], "V16"),
        texts=_leading_halves(row["hashes"]),
        conversations=conversations,
        positions=numbers >> 32,
        lengths=numbers >> 3 & 0x7FF,
        terms=np.frombuffer(row["terms"], "<i4"),
        words=numbers >> 14 & 0x3FFFF,
        cues=numbers & 0x7,
        speakers=np.array(speakers),
        names=list(names),
        days=said // _DAY + _EPOCH,
        made=said,
        cosines=None if row["distances"] is None else _cosines(row["distances"]),
        sample=None if row["sampled"] is None else np.array(row["sampled"], np.bool_),
    )


def _entries(sent: bytes, kind: str) -> npt.NDArray[Any]:
    entries = np.frombuffer(sent, [("size", ">i4"), ("value", kind)], offset=_ARRAY_HEADER)
    return np.ascontiguousarray(entries["value"])


def _integers(sent: bytes) -> npt.NDArray[np.int64]:
    return _entries(sent, ">i8").astype(np.int64)


def _cosines(sent: bytes) -> npt.NDArray[np.float64]:
    # There is no angle with a vector of zeros: it is like nothing.
    return np.nan_to_num(1 - _entries(sent, ">f8").astype(np.float64), nan=0.0)


def _leading_halves(hashes: str) -> npt.NDArray[np.int64]:
    """The first 64 of the 128 bits of each hash; they are written in hexadecimal digits."""
    digests = np.frombuffer(bytes.fromhex(hashes), ">i8").reshape(-1, 2)
    return digests[:, 0].astype(np.int64)
