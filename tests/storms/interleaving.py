"""A store in which much is under way at once, and an erasure in the midst of it."""

import asyncio
import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass, field

from kaos_memory.contract import ScopeLevel
from kaos_memory.storage.protocol import Storage, WorkState
from kaos_memory.tiers.memory import NewTurn, Owner
from kaos_memory.tiers.reach import Owners, Reach
from kaos_memory.work.workers import Workers

from ..service.conftest import Where
from ..service.storage.driving import account, fetch
from .held_commits import held
from .scripted_model import MARKER, Gate, Model
from .traces import Traces

HELPER, PLANNER = "kaos://agent/ns/helper", "kaos://agent/ns/planner"
OWNERS = (
    Owner("alice", HELPER, "s-1"),
    Owner("alice", HELPER, "s-2"),
    Owner("alice", PLANNER, "s-1"),
    Owner("bob", HELPER, "s-1"),
    Owner("bob", PLANNER, "s-3"),
)
IN_WORK = 2 * len(OWNERS)
MOST_TAKEN_OVER = 3
WORKERS = IN_WORK + MOST_TAKEN_OVER
REACHES = (
    Reach(ScopeLevel.SESSION, Owners("alice", HELPER, "s-1"), None),
    Reach(ScopeLevel.SESSION, Owners("bob", None, "s-1"), None),
    Reach(ScopeLevel.SESSION, Owners(None, None, "s-1"), None),
    Reach(ScopeLevel.AGENT, Owners("alice", HELPER), None),
    Reach(ScopeLevel.AGENT, Owners(None, PLANNER), None),
    Reach(ScopeLevel.USER, Owners("alice"), None),
    Reach(ScopeLevel.USER, Owners("bob"), None),
    Reach(ScopeLevel.STORE, Owners(), None),
)
_SECONDS = 30.0
"""For everything that must come to an end. A deadlock would not."""


@dataclass
class Write:
    """One turn, and when it was under way."""

    owner: Owner
    marker: str
    asked: int
    accepted: int = 0
    gate: Gate | None = None
    """Where it waited before its commit, from before the erasure was asked for."""


@dataclass
class Erasing:
    """The erasure of one round."""

    reach: Reach
    asked: int = 0
    answered: int = 0
    requests: int = 0
    """Requests that the model had got when it was answered."""

    def covers(self, owner: Owner) -> bool:
        """Whether it is about this owner's memory."""
        of = self.reach.owners
        named = (
            (of.principal, owner.principal),
            (of.agent, owner.agent),
            (of.session, owner.session),
        )
        return all(wanted in {None, found} for wanted, found in named)


@dataclass
class World:
    """A storage with workers, and what it must and must not hold."""

    storage: Storage
    workers: Workers
    model: Model
    traces: Traces
    where: Where
    luck: random.Random
    kept: dict[str, Owner] = field(default_factory=dict[str, Owner])
    gone: set[str] = field(default_factory=set[str])
    holding_commits: bool = False
    _ticks: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    _numbers: Iterator[int] = field(default_factory=itertools.count)
    _round: int = 0

    def commit_of_work(self) -> Gate | None:
        """Where a commit of background work waits, if it does."""
        if not self.holding_commits or self.luck.random() < 0.5:
            return None
        gate = Gate()
        self.model.waiting.append(gate)
        return gate

    async def play(self, number: int) -> None:
        """One round: everything is under way, an erasure comes, and all is let go in any order."""
        self._round, self._numbers = number, itertools.count()
        begun = len(self.model.requests)
        async with asyncio.timeout(_SECONDS):
            before = await self._wait_in_the_model()
            await self._take_over(self.luck.randrange(MOST_TAKEN_OVER + 1))
        waiting = await self._hold_a_write()
        await self._go_on_a_little()
        erasing = Erasing(self.luck.choice(REACHES))
        beside = await self._interleave(erasing, waiting)
        async with asyncio.timeout(_SECONDS):
            writes = [*before, waiting, *beside]
            after = [await self._write(owner) for owner in OWNERS]
            await self._rest()
        await self._settle(erasing, writes, after, begun)

    async def _wait_in_the_model(self) -> list[Write]:
        """Let a fold and an extraction of every owner wait in the model."""
        self.model.holding = True
        writes = [await self._write(owner) for owner in OWNERS for _ in range(6)]
        await self._asked(IN_WORK)
        return writes

    async def _take_over(self, leases: int) -> None:
        """Leases run out while the model is asked, as if their holders were cut off for long."""
        held = await fetch(
            self.where, "SELECT session_ref, kind FROM work WHERE lease IS NOT NULL ORDER BY 1, 2"
        )
        for session_ref, kind in self.luck.sample([tuple(row) for row in held], leases):
            await fetch(
                self.where,
                "UPDATE work SET run_after = now() - interval '1 second' "
                "WHERE session_ref = $1 AND kind = $2",
                session_ref,
                kind,
            )
        self.workers.wake()
        await self._asked(IN_WORK + leases)

    async def _asked(self, requests: int) -> None:
        """Wait until so many requests wait in the model."""
        while len(self.model.waiting) < requests:  # noqa: ASYNC110 - workers bring it about
            await asyncio.sleep(0.002)

    async def _hold_a_write(self) -> Write:
        write = Write(self.luck.choice(OWNERS), self._marker(), next(self._ticks), gate=Gate())
        self._writing = asyncio.create_task(self._append(write))
        assert write.gate is not None
        async with asyncio.timeout(_SECONDS):
            await write.gate.reached()
        return write

    async def _go_on_a_little(self) -> None:
        """Some of the work gets to its next request, or to before its commit."""
        self.holding_commits = True
        for _ in range(self.luck.randrange(12)):
            await self._release_one()
        await asyncio.sleep(self.luck.choice((0, 0.005, 0.02)))

    async def _interleave(self, erasing: Erasing, waiting: Write) -> list[Write]:
        events = ["erase", "let the write go", *["write"] * 2]
        events += ["release"] * self.luck.randrange(20)
        self.luck.shuffle(events)
        beside: list[asyncio.Task[Write]] = []
        erasure: asyncio.Task[None] | None = None
        for event in events:
            if event == "erase":
                erasure = asyncio.create_task(self._erase(erasing))
            elif event == "let the write go" and waiting.gate is not None:
                waiting.gate.open()
            elif event == "write":
                beside.append(asyncio.create_task(self._write(self.luck.choice(OWNERS))))
            else:
                await self._release_one()
            await asyncio.sleep(self.luck.choice((0, 0, 0.001, 0.005)))
        self.holding_commits = False
        self.model.release_all()
        assert erasure is not None
        async with asyncio.timeout(_SECONDS):
            await asyncio.gather(erasure, self._writing)
            return list(await asyncio.gather(*beside))

    async def _release_one(self) -> None:
        if self.model.waiting:
            self.model.waiting.pop(self.luck.randrange(len(self.model.waiting))).open()
        await asyncio.sleep(0)

    async def _erase(self, erasing: Erasing) -> None:
        erasing.asked = next(self._ticks)
        receipt = await self.storage.erase(erasing.reach, dry_run=False)
        erasing.answered, erasing.requests = next(self._ticks), len(self.model.requests)
        assert receipt.residue == 0

    async def _write(self, owner: Owner) -> Write:
        return await self._append(Write(owner, self._marker(), next(self._ticks)))

    async def _append(self, write: Write) -> Write:
        held.set(write.gate)
        due = await self.storage.append(write.owner, [NewTurn("user", f"{write.marker} is", 20)])
        write.accepted = next(self._ticks)
        if due:
            self.workers.wake()
        return write

    def _marker(self) -> str:
        return f"m{self._round:04}x{next(self._numbers):03}"

    async def _rest(self) -> None:
        """Wait until no work is left that could be done now."""
        resting = {WorkState.WAITING}
        while {  # noqa: ASYNC110 - workers bring it about
            count.state for count in await self.storage.work_summary()
        } - resting:
            await asyncio.sleep(0.01)

    async def _settle(
        self, erasing: Erasing, writes: list[Write], after: list[Write], begun: int
    ) -> None:
        """Check what there is, and remember it."""
        found = await self.traces.markers()
        gone = {marker for marker, owner in self.kept.items() if erasing.covers(owner)}
        for write in [*writes, *after]:
            begun_before = write.gate is not None or write.accepted < erasing.asked
            covered = erasing.covers(write.owner)
            if covered and begun_before:
                gone.add(write.marker)
            elif covered and write.asked < erasing.answered and write.marker not in found:
                gone.add(write.marker)  # either may have come first
            else:
                self.kept[write.marker] = write.owner
        self._check_requests(self.gone, begun)
        self.gone |= gone
        self._check_requests(self.gone, erasing.requests)
        self.kept = {marker: owner for marker, owner in self.kept.items() if marker not in gone}
        assert found & self.gone == set(), "what was erased is there again"
        for owner in OWNERS:
            await self._check(owner)

    def _check_requests(self, gone: set[str], since: int) -> None:
        asked = " ".join(self.model.requests[since:])
        assert set(MARKER.findall(asked)) & gone == set(), "a model was asked about what was erased"

    async def _check(self, owner: Owner) -> None:
        """All that was kept is there, in order, and was extracted and digested once."""
        counted = await account(self.where, owner)
        counted.check()
        named = (owner.principal, owner.agent, owner.session)
        of_owner = "principal = $1 AND agent = $2 AND session = $3"
        facts = await fetch(self.where, f"SELECT text FROM facts WHERE {of_owner}", *named)
        extracted = [marker for row in facts for marker in MARKER.findall(row["text"])]
        rows = await fetch(
            self.where,
            "SELECT content FROM turns t JOIN sessions s ON s.id = t.session_ref "
            "WHERE s.principal = $1 AND s.agent = $2 AND s.session = $3",
            *named,
        )
        present = {marker for row in rows for marker in MARKER.findall(row["content"])}
        assert len(extracted) == len(set(extracted)) == len(counted.extracted)
        kept = {marker for marker, of in self.kept.items() if of == owner}
        assert kept == present | set(extracted)
        assert counted.last == len(kept)
