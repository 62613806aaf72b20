"""A process that uses a local storage and kills itself at a named step.

Run as `python -m tests.service.storage.crashing <directory> <step>`.
"""

import asyncio
import os
import signal
import sys
from datetime import timedelta
from typing import Any

from kaos_memory.contract import ScopeLevel
from kaos_memory.settings import LocalStorage as Settings
from kaos_memory.settings import LongTerm
from kaos_memory.storage.local import erasures
from kaos_memory.storage.local.erasures import Erasures
from kaos_memory.storage.local.index import FactIndex
from kaos_memory.storage.local.schema import StoreIdentity
from kaos_memory.storage.local.storage import LocalStorage
from kaos_memory.storage.protocol import WorkKind
from kaos_memory.tiers.memory import NewTurn
from kaos_memory.tiers.reach import Owners, Reach
from kaos_memory.tiers.window import Compaction

from .driving import ALICE, LEASE, embedding, new_fact

SMALL = LongTerm(exact_search_limit=20)
"""An index is made for owners of more facts than these."""


def storage_in(directory: str) -> LocalStorage:
    return LocalStorage(
        Settings(path=directory),
        StoreIdentity("tests/store", "embedder"),
        Compaction(100, 50, 1_000, fold=False, extract=True),
        idle_after=timedelta(minutes=10),
        digest_retention=20,
        provenance=("writer", "prompt"),
        long_term=SMALL,
    )


async def remember(storage: LocalStorage, *texts: str) -> None:
    """Store facts of Alice's, as extracted from a turn."""
    await storage.append(ALICE, [NewTurn("user", "said", 1, infer=False)])
    lease = await storage.claim(LEASE, WorkKind.EXTRACT)
    assert lease is not None
    batch = await storage.load(lease)
    assert batch is not None
    facts = [new_fact(text, embedding(at)) for at, text in enumerate(texts)]
    await storage.commit_extraction(batch, facts)


async def _erase(storage: LocalStorage) -> None:
    reach = Reach(ScopeLevel.USER, Owners(ALICE.principal), None)
    await storage.erase(reach, dry_run=False)


async def _change_indexed(storage: LocalStorage) -> None:
    await storage._index.up_to_date()
    _STEPS_OF_INDEX[sys.argv[2]]()
    await remember(storage, "the newest fact")
    await storage._index.up_to_date()


def _die(*_: Any, **__: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


_STEPS_OF_INDEX = {
    "before Chroma is told": lambda: setattr(FactIndex, "_apply", _die),
    "before it is noted that Chroma was told": lambda: setattr(FactIndex, "_applied", _die),
    "if it connects": lambda: None,
}
_STEPS_OF_ERASURE = {
    "before the erasure is committed": lambda: setattr(Erasures, "_counts", _die),
    "before the file is scrubbed": lambda: setattr(erasures, "scrub", _die),
    "before the index is discarded": lambda: setattr(FactIndex, "discard", _die),
}


def _die_at_connects(event: str, _arguments: tuple[Any, ...]) -> None:
    if event in {"socket.connect", "socket.getaddrinfo", "socket.sendto"}:
        _die()


async def _main() -> None:
    if sys.argv[2] == "if it connects":
        sys.addaudithook(_die_at_connects)
    storage = storage_in(sys.argv[1])
    await storage.open()
    if sys.argv[2] in _STEPS_OF_ERASURE:
        _STEPS_OF_ERASURE[sys.argv[2]]()
        await _erase(storage)
    else:
        await _change_indexed(storage)
    await storage.close()


if __name__ == "__main__":
    asyncio.run(_main())
