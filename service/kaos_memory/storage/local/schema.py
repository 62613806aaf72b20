"""The tables of a store in SQLite, and whose they are.

Times are microseconds since 1970 (UTC). Absent principals are stored as '', which no caller can
name. Ids of sessions and numbers of facts are never used again, so that work which was taken up
before an erasure finds nothing that came after it.
"""

import secrets
from dataclasses import dataclass
from pathlib import Path

from kaos_memory.storage.erasure_key import KEY_BYTES, ErasureKey
from kaos_memory.storage.local.database import Connection, checkpoint
from kaos_memory.storage.protocol import StorageMisconfigured

_FIRST = """
    CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID;

    CREATE TABLE sessions (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        principal TEXT NOT NULL,
        agent TEXT NOT NULL,
        session TEXT NOT NULL,
        last_position INTEGER NOT NULL,
        window_tokens INTEGER NOT NULL,
        window_turns INTEGER NOT NULL,
        evicted_through INTEGER NOT NULL DEFAULT 0,
        folded_through INTEGER NOT NULL DEFAULT 0,
        extracted_through INTEGER NOT NULL DEFAULT 0,
        closed_through INTEGER NOT NULL DEFAULT 0,
        digest_version INTEGER NOT NULL DEFAULT 0,
        began_at INTEGER NOT NULL,
        last_turn_at INTEGER NOT NULL,
        UNIQUE (principal, agent, session),
        CHECK (0 <= folded_through AND folded_through <= evicted_through),
        CHECK (evicted_through < last_position AND extracted_through <= last_position),
        CHECK (closed_through <= last_position)
    ) STRICT;
    CREATE INDEX sessions_agent ON sessions (agent, principal);
    CREATE INDEX sessions_session ON sessions (session, agent, principal);

    CREATE TABLE turns (
        session_ref INTEGER NOT NULL REFERENCES sessions (id),
        position INTEGER NOT NULL,
        role TEXT NOT NULL,
        content TEXT NOT NULL,
        tokens INTEGER NOT NULL,
        infer INTEGER NOT NULL,
        created_at INTEGER NOT NULL,
        said_at INTEGER NOT NULL,
        PRIMARY KEY (session_ref, position)
    ) STRICT, WITHOUT ROWID;

    CREATE TABLE digests (
        session_ref INTEGER NOT NULL REFERENCES sessions (id),
        version INTEGER NOT NULL,
        summary TEXT NOT NULL,
        tokens INTEGER NOT NULL,
        first_position INTEGER NOT NULL,
        last_position INTEGER NOT NULL,
        created_at INTEGER NOT NULL,
        PRIMARY KEY (session_ref, version),
        CHECK (first_position <= last_position)
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX digests_age ON digests (created_at);

    CREATE TABLE facts (
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        id BLOB NOT NULL UNIQUE,
        principal TEXT NOT NULL,
        agent TEXT NOT NULL,
        session TEXT NOT NULL,
        hash TEXT NOT NULL,
        first_position INTEGER NOT NULL,
        last_position INTEGER NOT NULL,
        model TEXT NOT NULL,
        prompt_hash TEXT NOT NULL,
        created_at INTEGER NOT NULL,
        updated_at INTEGER NOT NULL,
        speaker TEXT NOT NULL,
        said_at INTEGER NOT NULL,
        words INTEGER NOT NULL,
        cues INTEGER NOT NULL,
        text TEXT NOT NULL,
        terms BLOB NOT NULL,
        UNIQUE (principal, agent, session, hash)
    ) STRICT;
    -- Each of them also gives its owners' facts in the order of their numbers.
    CREATE INDEX facts_principal ON facts (principal);
    CREATE INDEX facts_agent ON facts (agent, principal);
    CREATE INDEX facts_session ON facts (session, agent, principal);
    CREATE INDEX facts_age ON facts (updated_at);

    CREATE TABLE vectors (
        number INTEGER PRIMARY KEY REFERENCES facts (number) ON DELETE CASCADE,
        embedding BLOB NOT NULL
    ) STRICT;

    CREATE TABLE unindexed (
        change INTEGER PRIMARY KEY AUTOINCREMENT,
        number INTEGER NOT NULL
    ) STRICT;
    CREATE TRIGGER fact_added AFTER INSERT ON facts
    WHEN EXISTS (SELECT 1 FROM meta WHERE key = 'index') BEGIN
        INSERT INTO unindexed (number) VALUES (new.number);
    END;
    CREATE TRIGGER fact_gone AFTER DELETE ON facts
    WHEN EXISTS (SELECT 1 FROM meta WHERE key = 'index') BEGIN
        INSERT INTO unindexed (number) VALUES (old.number);
    END;

    CREATE TABLE work (
        session_ref INTEGER NOT NULL REFERENCES sessions (id),
        kind TEXT NOT NULL CHECK (kind IN ('fold', 'extract')),
        principal TEXT NOT NULL,
        agent TEXT NOT NULL,
        claimant TEXT NOT NULL
            GENERATED ALWAYS AS (CASE principal WHEN '' THEN agent ELSE principal END) STORED,
        run_after INTEGER NOT NULL,
        lease BLOB,
        attempts INTEGER NOT NULL DEFAULT 0,
        failures INTEGER NOT NULL DEFAULT 0,
        waiting INTEGER NOT NULL DEFAULT 0,
        dead INTEGER NOT NULL DEFAULT 0,
        last_error TEXT,
        PRIMARY KEY (session_ref, kind)
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX work_due ON work (claimant, run_after) WHERE NOT dead AND NOT waiting;
    CREATE INDEX work_waiting ON work (run_after) WHERE waiting;

    CREATE TABLE epochs (subject BLOB PRIMARY KEY, epoch INTEGER NOT NULL) STRICT, WITHOUT ROWID;

    CREATE TABLE erasures (
        id BLOB PRIMARY KEY DEFAULT (randomblob(16)),
        level TEXT NOT NULL,
        principal BLOB,
        agent BLOB,
        session BLOB,
        fact BLOB,
        erased_by BLOB,
        sessions INTEGER NOT NULL,
        turns INTEGER NOT NULL,
        digests INTEGER NOT NULL,
        facts INTEGER NOT NULL,
        residue INTEGER NOT NULL,
        erased_at INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX erasures_fact ON erasures (fact) WHERE fact IS NOT NULL;

    CREATE TABLE idempotency (
        key BLOB PRIMARY KEY,
        body BLOB NOT NULL,
        scheduled INTEGER NOT NULL,
        stored_at INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX idempotency_age ON idempotency (stored_at);

    CREATE TABLE token_usage (day TEXT PRIMARY KEY, tokens INTEGER NOT NULL) STRICT, WITHOUT ROWID;
"""

_MIGRATIONS = (_FIRST,)
"""In order; a file says in `user_version` how many of them it has."""

UNSCRUBBED = "unscrubbed"
"""The key of `meta` that is there from an erasure until the file holds no trace of it."""


@dataclass(frozen=True)
class StoreIdentity:
    """What a file belongs to; it is recorded there and must match for ever."""

    store: str
    embedding_model: str


def prepare(connection: Connection, path: Path, identity: StoreIdentity) -> ErasureKey:
    """Bring a file to what this version needs; finish an erasure that was interrupted.

    Raises:
        StorageMisconfigured: the file is not this store's, or not for this version.
    """
    _migrate(connection, path)
    meta = _ensure_meta(connection, identity)
    _refuse_another_store(meta, path, identity)
    scrub(connection)
    return ErasureKey(bytes.fromhex(meta["erasure_key"]))


def scrub(connection: Connection) -> None:
    """Leave no trace of what was erased, in the file or in its log; nothing where nothing was.

    `secure_delete` is not enough: when SQLite moves rows between pages, copies of them stay in
    gaps that no row uses. Only writing the whole file anew leaves them behind.
    """
    if connection.execute("SELECT 1 FROM meta WHERE key = ?", (UNSCRUBBED,)).fetchone():
        connection.execute("VACUUM")
        checkpoint(connection)
        connection.execute("DELETE FROM meta WHERE key = ?", (UNSCRUBBED,))


def _migrate(connection: Connection, path: Path) -> None:
    version: int = connection.execute("PRAGMA user_version").fetchone()[0]
    if version > len(_MIGRATIONS):
        raise StorageMisconfigured(
            f"{path} was written by a newer version of this service; install that version"
        )
    for number, statements in enumerate(_MIGRATIONS[version:], start=version + 1):
        connection.executescript(
            f"BEGIN IMMEDIATE; {statements}; PRAGMA user_version = {number}; COMMIT;"
        )


def _ensure_meta(connection: Connection, identity: StoreIdentity) -> dict[str, str]:
    new = {
        "store": identity.store,
        "embedding_model": identity.embedding_model,
        "erasure_key": secrets.token_hex(KEY_BYTES),
    }
    connection.executemany("INSERT OR IGNORE INTO meta VALUES (?, ?)", list(new.items()))
    return dict(connection.execute("SELECT key, value FROM meta").fetchall())


def _refuse_another_store(meta: dict[str, str], path: Path, identity: StoreIdentity) -> None:
    if meta["store"] != identity.store:
        raise StorageMisconfigured(
            f"{path} belongs to the store {meta['store']!r}, not to {identity.store!r}; give this "
            f"store another storage.local.path, or set store.name to {meta['store']!r} if it is "
            "the same store renamed"
        )
    if meta["embedding_model"] != identity.embedding_model:
        raise StorageMisconfigured(
            f"the facts in {path} have embedding_model {meta['embedding_model']!r}, but "
            f"models.embedding.model is {identity.embedding_model!r}; set it back, or use another "
            "storage.local.path"
        )
