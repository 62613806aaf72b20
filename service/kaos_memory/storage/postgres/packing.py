"""An owner's facts as one row of packed columns: what ranking needs, without a record per fact."""

from collections.abc import Hashable, Sequence
from typing import Any, Final

import asyncpg
import numpy as np
import numpy.typing as npt

from kaos_memory.tiers.ranking import Candidates

# Fewest steps for each fact: an array is built without a copy per entry, and sent as it is.
# Four small numbers travel in one, of 31, 18, 11 and 3 bits.
PACKED: Final = """
    count(*) AS count,
    array_send(array_agg(f.id)) AS ids,
    string_agg(f.hash, '') AS hashes,
    array_send(array_agg(
        (CASE WHEN f.first_position = f.last_position THEN f.first_position ELSE 0 END)::int8 << 32
        | least(f.words, 262143)::int8 << 14 | (octet_length(f.terms) / 4)::int8 << 3 | f.cues::int8
    )) AS numbers,
    array_send(array_agg(f.said_at)) AS said,
    array_send(array_agg(
        hashtextextended(f.session, hashtextextended(f.agent, hashtextextended(f.principal, 0)))
    )) AS conversations,
    array_agg(f.principal) AS principals,
    array_agg(f.speaker) AS speakers,
    string_agg(f.terms, '') AS terms
"""
