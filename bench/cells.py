"""The cells of a run: one measure of one subject with one number of clients."""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice

import asyncpg

from bench import wire
from bench.conversation import Turn, turns
from bench.floors import RawTables
from bench.known_facts import EMBEDDING_MODEL, KnownFacts
from bench.load import Address, Timing, run
from bench.processes import ModelEndpoint
from bench.subjects import WRITTEN, Subject
from bench.wire import Owner

FLOOR = "floor"
CLIENTS = (1, 32)
WINDOW_TURNS = 20
WRITES_PER_SESSION = 10
"""Far below the window's budget: a write that compacts is not what is measured here."""

_OK = b'"degraded":false'
_USERS = 50


@dataclass(frozen=True)
class Effort:
    """How long a cell runs: until one of the two is reached."""

    requests: int
    """Over all its clients."""
    seconds: float


@dataclass(frozen=True)
class Cell:
    """One measurement, repeated in every round."""

    measure: str
    subject: str
    clients: int
    facts: int | None
    play: Callable[[str, Effort], Awaitable[Timing]]
    """Runs it once; the text is unique in the run."""


@dataclass(frozen=True)
class Scene:
    """Everything that cells are made of."""

    subjects: Sequence[tuple[Subject, asyncpg.Connection]]
    """Each with a superuser's connection to its database."""
    models: ModelEndpoint
    nothing: Address
    raw: RawTables
    facts: Sequence[KnownFacts]
    windows: Sequence[Owner]


def window_owners(sessions: int) -> list[Owner]:
    """Owners of the windows that are read, several for each user."""
    return [Owner(f"user-{n % _USERS}", f"window-{n}") for n in range(sessions)]


def window_turns(owner: Owner) -> list[Turn]:
    """What was said in a session."""
    return list(islice(turns(owner.session), WINDOW_TURNS))


def groups(scene: Scene) -> Iterator[list[Cell]]:
    """Cells to be measured directly after one another, because they are compared."""
    for clients in CLIENTS:
        yield [
            *(_write(*each, clients) for each in scene.subjects),
            _floor("empty_post", clients, partial(_empty_post, scene.nothing, clients)),
            _floor("raw_insert", clients, partial(_raw_insert, scene.raw, clients)),
        ]
        yield [
            *(_window_recall(subject, clients, scene.windows) for subject, _ in scene.subjects),
            _floor("raw_window_query", clients, partial(_raw_window, scene.raw, clients)),
        ]
        for known in scene.facts:
            yield [
                *(_full_recall(subject, clients, known) for subject, _ in scene.subjects),
                _floor("query_embedding", clients, partial(_embedding, scene, known, clients)),
            ]


def _write(subject: Subject, admin: asyncpg.Connection, clients: int) -> Cell:
    async def play(unique: str, effort: Effort) -> Timing:
        scripts = _write_scripts(unique, clients, effort)
        proof = b'"accepted":true,"scheduled":false,"degraded":false'
        timing = await run(subject.address, scripts, proof=proof, seconds=effort.seconds)
        await subject.remove_written(admin)
        return timing

    return Cell("write", subject.name, clients, None, play)


def _write_scripts(unique: str, clients: int, effort: Effort) -> list[list[bytes]]:
    return [
        list(islice(_writes(f"{unique}-{client}"), effort.requests // clients))
        for client in range(clients)
    ]


def _writes(name: str) -> Iterator[bytes]:
    """One user's writes of two turns each, session after session."""
    said, number = turns(name), 0
    while True:
        owner = Owner(f"writer-{name}", f"{WRITTEN}{name}-{number // WRITES_PER_SESSION}")
        yield wire.write(owner, list(islice(said, 2)))
        number += 1


def _window_recall(subject: Subject, clients: int, owners: Sequence[Owner]) -> Cell:
    requests = [wire.window_recall(owner) for owner in owners]

    async def play(_unique: str, effort: Effort) -> Timing:
        scripts = _dealt(requests, clients, effort)
        return await run(subject.address, scripts, proof=_OK, seconds=effort.seconds)

    return Cell("window_recall", subject.name, clients, None, play)


def _full_recall(subject: Subject, clients: int, known: KnownFacts) -> Cell:
    requests = [wire.full_recall(known.owner, question) for question in known.questions]

    async def play(_unique: str, effort: Effort) -> Timing:
        scripts = _dealt(requests, clients, effort)
        return await run(subject.address, scripts, proof=_OK, seconds=effort.seconds)

    return Cell("full_recall", subject.name, clients, len(known.texts), play)


def _dealt(requests: Sequence[bytes], clients: int, effort: Effort) -> list[list[bytes]]:
    """Deal requests to clients in turn, so that the same one comes back as late as possible."""
    return [
        [requests[(step * clients + client) % len(requests)] for step in range(steps)]
        for client, steps in enumerate([effort.requests // clients] * clients)
    ]


def _floor(measure: str, clients: int, play: Callable[[str, Effort], Awaitable[Timing]]) -> Cell:
    return Cell(measure, FLOOR, clients, None, play)


async def _empty_post(address: Address, clients: int, unique: str, effort: Effort) -> Timing:
    scripts = _write_scripts(unique, clients, effort)
    return await run(address, scripts, proof=b"{}", seconds=effort.seconds)


async def _raw_insert(raw: RawTables, clients: int, unique: str, effort: Effort) -> Timing:
    pair = list(islice(turns(unique), 2))
    each = effort.requests // clients
    return await raw.insert(pair, clients=clients, most=each, secs=effort.seconds)


async def _raw_window(raw: RawTables, clients: int, _unique: str, effort: Effort) -> Timing:
    each = effort.requests // clients
    return await raw.window(clients=clients, most=each, secs=effort.seconds)


async def _embedding(
    scene: Scene, known: KnownFacts, clients: int, _unique: str, effort: Effort
) -> Timing:
    key = {"Authorization": f"Bearer {scene.models.api_key}"}
    requests = [
        wire.post("/v1/embeddings", {"model": EMBEDDING_MODEL, "input": [question]}, key)
        for question in known.questions
    ]
    scripts = _dealt(requests, clients, effort)
    proof = b'"object":"list"'
    return await run(scene.models.address, scripts, proof=proof, seconds=effort.seconds)
