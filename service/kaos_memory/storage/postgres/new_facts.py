"""Storing an extraction's facts in PostgreSQL."""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime

from kaos_memory.storage.erasure_key import ErasureKey
from kaos_memory.storage.postgres.database import Connection
from kaos_memory.storage.prepared_facts import PreparedFact
from kaos_memory.tiers.memory import Owner

_ERASED = """
    SELECT fact, max(erased_at) AS erased_at FROM erasures
    WHERE fact IS NOT NULL AND fact = ANY($1)
        AND (principal IS NULL OR principal = $2)
        AND (agent IS NULL OR agent = $3)
        AND (session IS NULL OR session = $4)
    GROUP BY fact
"""
# A microsecond between facts of one extraction keeps them in their order in lists.
_ADD = """
    INSERT INTO facts AS f (principal, agent, session, model, prompt_hash, text, hash, embedding,
                            first_position, last_position, speaker, said_at, terms, words, cues,
                            created_at, updated_at)
    SELECT $1, $2, $3, $4, $5, text, hash, embedding::halfvec, first, last, speaker, said_at,
           terms, words, cues, made, made
    FROM unnest($6::text[], $7::text[], $8::text[], $9::integer[], $10::integer[], $11::text[],
                $12::timestamptz[], $13::bytea[], $14::integer[], $15::smallint[])
        WITH ORDINALITY
        AS new (text, hash, embedding, first, last, speaker, said_at, terms, words, cues, at),
        LATERAL (SELECT now() + at * interval '1 microsecond' AS made) AS times
    ON CONFLICT (principal, agent, session, hash) DO UPDATE SET updated_at = now()
"""
_SAID_AGAIN = """
    UPDATE facts SET updated_at = now()
    WHERE principal = $1 AND agent = $2 AND session = $3 AND hash = ANY($4)
"""


async def add(
    connection: Connection,
    owner: Owner,
    provenance: tuple[str, str],
    facts: Sequence[PreparedFact[str]],
) -> None:
    """Store facts; those that are known were only said again."""
    if not facts:
        return
    await connection.execute(
        _ADD,
        owner.principal,
        owner.agent,
        owner.session,
        *provenance,
        [each.fact.text for each in facts],
        [each.hash for each in facts],
        [each.embedding for each in facts],
        [each.fact.first_position for each in facts],
        [each.fact.last_position for each in facts],
        [each.fact.speaker for each in facts],
        [each.fact.said_at for each in facts],
        [each.terms for each in facts],
        [each.words for each in facts],
        [each.cues for each in facts],
    )


async def said_again(connection: Connection, owner: Owner, hashes: Collection[str]) -> None:
    """Note that facts of a session were said again now."""
    if hashes:
        await connection.execute(
            _SAID_AGAIN, owner.principal, owner.agent, owner.session, list(hashes)
        )


async def erasures_of(
    connection: Connection, key: ErasureKey, owner: Owner, hashes: Collection[str]
) -> Mapping[str, datetime]:
    """Which of these facts of an owner were erased one by one, and when last."""
    by_key = {key.fact(text_hash): text_hash for text_hash in hashes}
    if not by_key:
        return {}
    rows = await connection.fetch(_ERASED, list(by_key), *key.names(owner))
    return {by_key[row["fact"]]: row["erased_at"] for row in rows}
