"""The cells of a run: one measure of one subject with one number of clients."""

from collections.abc import Iterator, Sequence
from itertools import islice

from bench import wire
from bench.conversation import Turn, turns
from bench.known_facts import EMBEDDING_MODEL, Stage, topic_texts
from bench.load import Timing, run
from bench.plan import Effort
from bench.processes import ModelEndpoint
from bench.rounds import Cell, Key
from bench.subjects import WRITTEN, Service, Subject, address
from bench.wire import Owner

CLIENTS = (1, 8, 32)
WINDOW_TURNS = 20
WRITES_PER_SESSION = 10
"""Far below the window's budget: a write that compacts is not what is measured here."""

_OK = b'"degraded":false'
_USERS = 50


def window_owners(sessions: int) -> list[Owner]:
    """Owners of the windows that are read, several for each user."""
    return [Owner(f"user-{n % _USERS}", f"window-{n}") for n in range(sessions)]


def window_turns(owner: Owner) -> list[Turn]:
    """What was said in a session."""
    return list(islice(turns(owner.session), WINDOW_TURNS))


def writes(services: Sequence[Service], window_rows: int = 0) -> list[list[Cell]]:
    """Writes of two turns each into many sessions, beside so many turns of others."""
    return [[_write(each, clients, window_rows) for each in services] for clients in CLIENTS]


def window_recalls(services: Sequence[Service], owners: Sequence[Owner]) -> list[list[Cell]]:
    """Recalls of the window alone."""
    requests = [wire.window_recall(owner) for owner in owners]
    return [
        [_recall(Key("window_recall", each.name, clients), each, requests) for each in services]
        for clients in CLIENTS
    ]


def full_recalls(subjects: Sequence[Subject], stage: Stage) -> list[list[Cell]]:
    """Recalls of all tiers, question after question, tenant after tenant."""
    requests = [wire.full_recall(each.tenant.owner, each.text) for each in stage.questions]
    return [
        [
            _recall(Key("full_recall", each.name, clients, stage.facts), each, requests)
            for each in subjects
        ]
        for clients in CLIENTS
    ]


def embeddings(models: ModelEndpoint) -> list[list[Cell]]:
    """The floor of a full recall: the model server alone, which every one waits for."""
    key = {"Authorization": f"Bearer {models.api_key}"}
    requests = [
        wire.post("/v1/embeddings", {"model": EMBEDDING_MODEL, "input": [question]}, key)
        for question in topic_texts()
    ]

    def cell(clients: int) -> Cell:
        async def play(_unique: str, effort: Effort) -> Timing:
            scripts = _dealt(requests, clients, effort)
            proof = b'"object":"list"'
            return await run(models.address, scripts, proof=proof, seconds=effort.seconds)

        return Cell(Key("full_recall", "floor", clients), play)

    return [[cell(clients)] for clients in CLIENTS]


def _write(service: Service, clients: int, window_rows: int) -> Cell:
    async def play(unique: str, effort: Effort) -> Timing:
        scripts = [
            list(islice(_writes(f"{unique}-{client}"), effort.requests // clients))
            for client in range(clients)
        ]
        proof = b'"accepted":true,"scheduled":false,"degraded":false'
        timing = await run(address(service), scripts, proof=proof, seconds=effort.seconds)
        await service.remove_written()
        return timing

    return Cell(Key("write", service.name, clients, window_rows=window_rows), play)


def _writes(name: str) -> Iterator[bytes]:
    """One user's writes of two turns each, session after session."""
    said, number = turns(name), 0
    while True:
        owner = Owner(f"writer-{name}", f"{WRITTEN}{name}-{number // WRITES_PER_SESSION}")
        yield wire.write(owner, list(islice(said, 2)))
        number += 1


def _recall(key: Key, service: Service, requests: Sequence[bytes]) -> Cell:
    async def play(_unique: str, effort: Effort) -> Timing:
        scripts = _dealt(requests, key.clients or 1, effort)
        return await run(address(service), scripts, proof=_OK, seconds=effort.seconds)

    return Cell(key, play)


def _dealt(requests: Sequence[bytes], clients: int, effort: Effort) -> list[list[bytes]]:
    """Deal requests to clients in turn, so that the same one comes back as late as possible."""
    return [
        [requests[(step * clients + client) % len(requests)] for step in range(steps)]
        for client, steps in enumerate([effort.requests // clients] * clients)
    ]
