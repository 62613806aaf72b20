"""What is measured beside each other: our service, the published one, and a floor.

Both services run with their default settings apart from the DSN, the model endpoint and its key;
the models' names are the published service's defaults. Each has a database of its own on the same
server, owned by an ordinary role.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import asyncpg

from bench.known_facts import Tenant
from bench.load import Address
from bench.processes import Process
from bench.wire import Owner

WRITTEN = "written-"
"""Sessions of the write measure begin so: they are removed again after each run."""
CROWD_TURNS = 20
"""Turns in each session of the crowd, whose windows lie there while others write."""


class Service(Protocol):
    """Something that answers writes and window recalls."""

    name: str
    process: Process
    admin: asyncpg.Connection
    """A superuser's connection to its database."""

    async def remove_written(self) -> None:
        """Bring the tables back to what they were before the write measure."""
        ...


class Subject(Service, Protocol):
    """A memory service: it has facts too, and forgets."""

    forgotten: bytes
    """What the answer to a forget holds, if all that it promises is in it."""

    async def seed_facts(self, tenants: Sequence[Tenant]) -> None:
        """Put facts where its extraction would have put them."""
        ...

    async def seed_crowd(self, rows: int, contents: Sequence[str]) -> None:
        """Put turns of other sessions into the windows, where its writes would have put them."""
        ...

    async def facts_left(self, owner: Owner) -> int:
        """Count a user's facts in its table."""
        ...


@dataclass
class Floor:
    """The least that a store must do: `bench.bare`."""

    process: Process
    admin: asyncpg.Connection
    name: str = "floor"

    async def remove_written(self) -> None:
        """Bring the table back to what it was before the write measure."""
        await self.admin.execute("DELETE FROM turns WHERE session LIKE $1", f"{WRITTEN}%")
        await self.admin.execute("VACUUM ANALYZE turns")


def address(service: Service) -> Address:
    """Where it listens."""
    return Address("127.0.0.1", service.process.port)
