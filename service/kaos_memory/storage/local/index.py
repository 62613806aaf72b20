"""An index of all facts' vectors in Chroma, for searches that would have to compare too many.

Chroma holds numbers of facts and their vectors, nothing else, and all of it can be made again from
SQLite. The facts that were added or deleted since it was last brought up to date are noted in
SQLite (`unindexed`) by the transactions that change them; a crash in between only means that
they are applied twice. It is made once somebody has more facts than are compared one by one:
before that it would never be asked. An erasure throws it away, because Chroma leaves deleted
vectors in its files.
"""

import asyncio
import logging
import shutil
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from uuid import uuid4

from kaos_memory.storage.local.database import Connection, Database, value
from kaos_memory.storage.local.vectors import decode, unit

if TYPE_CHECKING:
    from chromadb.api.client import Client
    from chromadb.api.collection_configuration import CreateCollectionConfiguration

_BATCH = 200
"""Facts that are added at once; closing waits for one batch, about half a second."""
_RETRY_SECONDS = 60.0
_QUERY_SECONDS = 0.5
"""To compare all facts takes about as long."""
_GENERATION = "SELECT value FROM meta WHERE key = 'index'"
_CHANGED = """
    SELECT u.change, u.number, v.embedding
    FROM unindexed u LEFT JOIN vectors v ON v.number = u.number
    ORDER BY u.change LIMIT :most
"""
# Never synchronised: Chroma's log has all vectors, and the graph is made from it in memory. See
# `_drop_graph_files`.
_SETTINGS: "CreateCollectionConfiguration" = {
    "hnsw": {
        "space": "cosine",
        "ef_construction": 200,
        "ef_search": 400,
        "sync_threshold": 2_000_000_000,
    }
}

_log = logging.getLogger(__name__)


class FactIndex:
    """Finds facts of any owner near a vector, once it is ready.

    Args:
        database: Has the facts.
        name: Of the collection in Chroma; its directories, one for each time that it was made
            anew, are beside the database's file.
    """

    def __init__(self, database: Database, name: str) -> None:
        self._database = database
        self._name = name
        self._thread = ThreadPoolExecutor(1, f"{name}-index")
        self._generation: str | None = None
        self._client: Client | None = None
        self._collection: Any = None
        self._ready = False
        self._wanted = False
        self._queued = False
        self._retry_at = 0.0
        self._closing = False
        self._drop_others(database.read_here(generation))

    def close(self) -> None:
        """Wait for what runs, then let go of all files."""
        self._closing = True
        self._thread.shutdown(cancel_futures=True)
        self._leave()

    async def nearest(self, embedding: Sequence[float], most: int) -> list[int] | None:
        """About the nearest facts' numbers, nearest first; None while the index is busy."""
        if not self._ready:
            self._wanted = True
            self.refresh()
            return None
        try:
            async with asyncio.timeout(_QUERY_SECONDS):
                return await asyncio.wrap_future(
                    self._thread.submit(self._nearest, embedding, most)
                )
        except TimeoutError:
            return None

    def refresh(self) -> None:
        """Have changes of facts applied soon, if the index is in use."""
        if self._wanted and not self._queued and time.monotonic() >= self._retry_at:
            self._queued = True
            self._thread.submit(self._refresh)

    async def up_to_date(self) -> bool:
        """Wait until all changes are applied; make the index where there is none."""
        self._wanted = True
        await asyncio.wrap_future(self._thread.submit(self._refresh))
        return self._ready

    async def discard(self) -> None:
        """Delete the files of an index that `forget` has given up."""
        await asyncio.wrap_future(self._thread.submit(self._discard))

    def _nearest(self, embedding: Sequence[float], most: int) -> list[int] | None:
        if not self._ready:
            return None
        try:
            found = self._collection.query(
                query_embeddings=[unit(embedding)], n_results=most, include=[]
            )
        except Exception as error:  # noqa: BLE001 - Chroma says not what it raises
            self._failed(error)
            return None
        return [int(number) for number in found["ids"][0]]

    def _refresh(self) -> None:
        self._queued = False
        try:
            self._open(self._database.write_from_thread(_begin))
            self._catch_up()
            self._warm_up()
            self._drop_graph_files()
            self._ready = not self._closing
        except Exception as error:  # noqa: BLE001 - searches go on without it
            self._failed(error)

    def _failed(self, error: Exception) -> None:
        """Go on without; whatever is wrong with its files, the next ones are new."""
        _log.warning("fact_index_failed", extra={"reason": type(error).__name__})
        self._retry_at = time.monotonic() + _RETRY_SECONDS
        self._leave()
        try:
            self._database.write_from_thread(forget)
        except Exception as again:  # noqa: BLE001 - the database is away: then it stays as it is
            _log.warning("fact_index_kept", extra={"reason": type(again).__name__})

    def _open(self, generation: str) -> None:
        if generation == self._generation:
            return
        # Imported here: it takes two seconds, and most stores never need it.
        import chromadb  # noqa: PLC0415
        from chromadb.config import Settings  # noqa: PLC0415

        self._leave()
        self._drop_others(generation)
        settings = Settings(anonymized_telemetry=False)
        path = str(self._directory(generation))
        self._client = cast("Client", chromadb.PersistentClient(path, settings))
        self._collection = self._client.get_or_create_collection(
            self._name, embedding_function=None, configuration=_SETTINGS
        )
        self._generation = generation
        self._catch_up()
        self._compare()

    def _compare(self) -> None:
        """Note every fact that is in only one of the two, as after a crash of the machine."""
        held = {int(number) for number in self._collection.get(include=[])["ids"]}

        def note_differences(connection: Connection) -> None:
            waiting = _numbers(connection, "SELECT number FROM unindexed")
            facts = _numbers(connection, "SELECT number FROM vectors")
            connection.executemany(
                "INSERT INTO unindexed (number) VALUES (?)",
                [(number,) for number in (held ^ facts) - waiting],
            )

        self._database.write_from_thread(note_differences)

    def _catch_up(self) -> None:
        while not self._closing and self._apply():
            pass

    def _warm_up(self) -> None:
        """Ask once, because Chroma puts new vectors in their places when it is asked."""
        some = self._collection.get(limit=1, include=["embeddings"])
        if some["ids"]:
            self._collection.query(query_embeddings=some["embeddings"], n_results=1, include=[])

    def _drop_graph_files(self) -> None:
        """Delete the files that Chroma begins its graph with, and does not read again.

        It writes memory into them that it has not filled: what this process had freed before,
        such as texts, would stay in them (seen: a user's name in `data_level0.bin`).
        """
        if self._generation is not None:
            for path in self._directory(self._generation).iterdir():
                if path.is_dir():
                    shutil.rmtree(path)

    def _apply(self) -> bool:
        """Apply the oldest changes. False where there was none."""

        def look(connection: Connection) -> list[tuple[int, int, bytes | None]]:
            return [tuple(row) for row in connection.execute(_CHANGED, {"most": _BATCH})]

        changes = self._database.read_here(look)
        if not changes:
            return False
        added = {number: stored for _, number, stored in changes if stored is not None}
        gone = {number for _, number, stored in changes if stored is None}
        if added:
            self._collection.upsert(
                ids=[str(number) for number in added], embeddings=decode(list(added.values()))
            )
        if gone:
            self._collection.delete(ids=[str(number) for number in gone])
        self._applied(changes[-1][0])
        return True

    def _applied(self, last: int) -> None:
        self._database.write_from_thread(
            lambda connection: connection.execute(
                "DELETE FROM unindexed WHERE change <= ?", (last,)
            )
        )

    def _discard(self) -> None:
        current = self._database.read_here(generation)
        if current != self._generation:
            self._leave()
        self._drop_others(current)

    def _leave(self) -> None:
        self._ready = False
        self._generation = self._collection = None
        if self._client is not None:
            self._client.close()
            self._client = None

    def _drop_others(self, generation: str | None) -> None:
        kept = None if generation is None else self._directory(generation)
        for directory in self._database.path.parent.glob(f"{self._name}.chroma-*"):
            if directory != kept:
                shutil.rmtree(directory)

    def _directory(self, generation: str) -> Path:
        return self._database.path.parent / f"{self._name}.chroma-{generation}"


def generation(connection: Connection) -> str | None:
    """Which of the index's directories goes with the facts as they are; None for none."""
    return value(connection, _GENERATION, {})


def forget(connection: Connection) -> None:
    """Give the index up, in the transaction that deletes what must not stay in it."""
    connection.execute("DELETE FROM meta WHERE key = 'index'")
    connection.execute("DELETE FROM unindexed")


def _begin(connection: Connection) -> str:
    """The index's generation; where there is none, a new one, with all facts to be added."""
    current = generation(connection)
    if current is None:
        current = uuid4().hex
        connection.execute("DELETE FROM unindexed")
        connection.execute("INSERT INTO meta VALUES ('index', ?)", (current,))
        connection.execute("INSERT INTO unindexed (number) SELECT number FROM vectors")
    return current


def _numbers(connection: Connection, query: str) -> set[int]:
    return {number for (number,) in connection.execute(query)}
