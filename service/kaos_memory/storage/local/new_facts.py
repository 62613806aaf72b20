"""Storing an extraction's facts in SQLite."""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from uuid import uuid4

from kaos_memory.storage.erasure_key import ErasureKey
from kaos_memory.storage.local import vectors
from kaos_memory.storage.local.database import Connection, micros, moment, now, one, value
from kaos_memory.storage.prepared_facts import PreparedFact
from kaos_memory.tiers.memory import Owner

_ADD = """
    INSERT INTO facts (id, principal, agent, session, hash, first_position, last_position, model,
        prompt_hash, created_at, updated_at, speaker, said_at, words, cues, text, terms)
    VALUES (:id, :principal, :agent, :session, :hash, :first, :last, :model, :prompt_hash, :now,
        :now, :speaker, :said_at, :words, :cues, :text, :terms)
    ON CONFLICT (principal, agent, session, hash) DO NOTHING
    RETURNING number
"""
_SAID_AGAIN = """
    UPDATE facts SET updated_at = :now
    WHERE principal = :principal AND agent = :agent AND session = :session AND hash = :hash
"""
_ADD_VECTOR = "INSERT INTO vectors (number, embedding) VALUES (:number, :embedding)"
_ERASED = """
    SELECT max(erased_at) FROM erasures
    WHERE fact = :fact AND (principal IS NULL OR principal = :principal)
        AND (agent IS NULL OR agent = :agent) AND (session IS NULL OR session = :session)
"""


def add(
    connection: Connection,
    owner: Owner,
    provenance: tuple[str, str],
    facts: Sequence[PreparedFact[bytes]],
) -> None:
    """Store facts; those that are known were only said again.

    Raises:
        ModelError: their embeddings have other dimensions than those of the store's facts.
    """
    time = now()
    model, prompt_hash = provenance
    for each in facts:
        fact = each.fact
        vectors.learn_dims(connection, fact.embedding)
        named = {
            "id": uuid4().bytes,
            "principal": owner.principal,
            "agent": owner.agent,
            "session": owner.session,
            "hash": each.hash,
            "first": fact.first_position,
            "last": fact.last_position,
            "model": model,
            "prompt_hash": prompt_hash,
            "now": time,
            "speaker": fact.speaker,
            "said_at": micros(fact.said_at),
            "words": each.words,
            "cues": each.cues,
            "text": fact.text,
            "terms": each.terms,
        }
        added = one(connection, _ADD, named)
        if added is None:
            connection.execute(_SAID_AGAIN, named)
        else:
            of_fact = {"number": added["number"], "embedding": each.embedding}
            connection.execute(_ADD_VECTOR, of_fact)


def said_again(connection: Connection, owner: Owner, hashes: Collection[str]) -> None:
    """Note that facts of a session were said again now."""
    named = {
        "principal": owner.principal,
        "agent": owner.agent,
        "session": owner.session,
        "now": now(),
    }
    connection.executemany(_SAID_AGAIN, [{**named, "hash": each} for each in hashes])


def erasures_of(
    connection: Connection, key: ErasureKey, owner: Owner, hashes: Collection[str]
) -> Mapping[str, datetime]:
    """Which of these facts of an owner were erased one by one, and when last."""
    of_owner = dict(zip(("principal", "agent", "session"), key.names(owner), strict=True))
    erased: dict[str, datetime] = {}
    for each in hashes:
        last: int | None = value(connection, _ERASED, {**of_owner, "fact": key.fact(each)})
        if last is not None:
            erased[each] = moment(last)
    return erased
