"""A store in which much is under way at once, and an erasure in the midst of it."""

import asyncio
import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from uuid import UUID

from kaos_memory.contract import ScopeLevel
from kaos_memory.storage.protocol import Storage, WorkState
from kaos_memory.tiers.memory import NewTurn, Owner
from kaos_memory.tiers.reach import Owners, Reach
from kaos_memory.work.workers import Workers

from ..service.conftest import Where
from ..service.storage.driving import account, fetch
from .held_commits import held
from .scripted_model import MARKER, Gate, Model, fact_marker
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
    """An erasure of one round."""

    reach: Reach
    fact: tuple[UUID, str] | None = None
    """Only this fact, which the reach covers, with its marker."""
    asked: int = 0
    answered: int = 0
    requests: int = 0
    """Requests that the model had got when it was answered."""

    def covers(self, owner: Owner) -> bool:
        """Whether it is about all of this owner's memory."""
        of = self.reach.owners
        named = (
            (of.principal, owner.principal),
            (of.agent, owner.agent),
            (of.session, owner.session),
        )
        return self.fact is None and all(wanted in {None, found} for wanted, found in named)

    def follows(self, write: Write) -> bool:
        """Whether it came after a write for certain, and covers it."""
        under_way = write.gate is not None or write.accepted < self.asked
        return under_way and self.covers(write.owner)

    def beside(self, write: Write) -> bool:
        """Whether it covers a write, and either may have come first."""
        return write.asked < self.answered and self.covers(write.owner)


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
    _gate: Gate = field(default_factory=Gate)

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
            erasures = [await self._drawn() for _ in range(self.luck.choice((1, 1, 2)))]
        waiting = await self._hold_a_write()
        await self._go_on_a_little()
        others = await self._interleave(erasures, waiting)
        async with asyncio.timeout(_SECONDS):
            after = [await self._write(owner) for owner in OWNERS]
            await self._rest()
        await self._settle(erasures, [*before, *others, *after], begun)

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
        gate = self._gate = Gate()
        write = Write(self.luck.choice(OWNERS), self._marker(), next(self._ticks), gate=gate)
        self._writing = asyncio.create_task(self._append(write))
        reached = asyncio.create_task(gate.reached())
        async with asyncio.timeout(_SECONDS):
            await asyncio.wait({self._writing, reached}, return_when=asyncio.FIRST_COMPLETED)
        if self._writing.done():
            self._writing.result()
        return write

    def let_go(self) -> None:
        """Hold nothing any more."""
        self.holding_commits = False
        self.model.release_all()
        self._gate.open()

    async def _go_on_a_little(self) -> None:
        """Some of the work gets to its next request, or to before its commit."""
        self.holding_commits = True
        for _ in range(self.luck.randrange(12)):
            await self._release_one()
        await asyncio.sleep(self.luck.choice((0, 0.005, 0.02)))

    async def _drawn(self) -> Erasing:
        """Any erasure; of a single fact as often as of anything else."""
        facts = await fetch(self.where, "SELECT id, text, principal, agent FROM facts")
        if not facts or self.luck.random() < 0.7:
            return Erasing(self.luck.choice(REACHES))
        identity, text, principal, agent = self.luck.choice(facts)
        found = identity if isinstance(identity, UUID) else UUID(bytes=identity)
        owners = self.luck.choice((Owners(), Owners(principal), Owners(principal, agent)))
        [marker] = MARKER.findall(text)
        return Erasing(Reach(ScopeLevel.USER, owners, None), (found, marker))

    async def _interleave(self, erasures: list[Erasing], waiting: Write) -> list[Write]:
        left = list(erasures)
        events = [*["erase"] * len(left), "let the write go", *["write"] * 2]
        events += ["release"] * self.luck.randrange(20)
        self.luck.shuffle(events)
        beside: list[asyncio.Task[Write]] = []
        erasing: list[asyncio.Task[None]] = []
        for event in events:
            if event == "erase":
                erasing.append(asyncio.create_task(self._erase(left.pop())))
            elif event == "let the write go" and waiting.gate is not None:
                waiting.gate.open()
            elif event == "write":
                beside.append(asyncio.create_task(self._write(self.luck.choice(OWNERS))))
            else:
                await self._release_one()
            await asyncio.sleep(self.luck.choice((0, 0, 0.001, 0.005)))
        self.let_go()
        async with asyncio.timeout(_SECONDS):
            await asyncio.gather(*erasing)
            return list(await asyncio.gather(self._writing, *beside))

    async def _release_one(self) -> None:
        if self.model.waiting:
            self.model.waiting.pop(self.luck.randrange(len(self.model.waiting))).open()
        await asyncio.sleep(0)

    async def _erase(self, erasing: Erasing) -> None:
        erasing.asked = next(self._ticks)
        if erasing.fact is None:
            receipt = await self.storage.erase(erasing.reach, dry_run=False)
        else:
            receipt = await self.storage.erase_fact(erasing.reach.owners, erasing.fact[0])
        erasing.answered, erasing.requests = next(self._ticks), len(self.model.requests)
        # A fact may be gone already, with the erasure beside this one.
        assert (receipt is None and erasing.fact is not None) or (receipt and receipt.residue == 0)

    async def _write(self, owner: Owner) -> Write:
        return await self._append(Write(owner, self._marker(), next(self._ticks)))

    async def _append(self, write: Write) -> Write:
        held.set(write.gate)
        await self.storage.append(write.owner, [NewTurn("user", f"It was {write.marker}", 20)])
        write.accepted = next(self._ticks)
        self.workers.wake()
        return write

    def _marker(self) -> str:
        return f"t{self._round:04}x{next(self._numbers):03}"

    async def _rest(self) -> None:
        """Wait until no work is left that could be done now."""
        resting = {WorkState.WAITING}
        while {  # noqa: ASYNC110 - workers bring it about
            count.state for count in await self.storage.work_summary()
        } - resting:
            await asyncio.sleep(0.01)

    async def _settle(self, erasures: list[Erasing], writes: list[Write], begun: int) -> None:
        """Check what there is, and remember it."""
        self._check_requests(self.gone, begun)
        found = await self.traces.markers()
        self.kept |= {write.marker: write.owner for write in writes}
        for erasing in erasures:
            gone = {marker for marker, owner in self.kept.items() if erasing.covers(owner)}
            gone -= {write.marker for write in writes if not erasing.follows(write)}
            everything = gone | {fact_marker(marker) for marker in gone}
            if erasing.fact is not None:
                everything.add(erasing.fact[1])
            self._check_requests(everything, erasing.requests)
            self.gone |= everything
        for write in writes:
            doubtful = any(erasing.beside(write) for erasing in erasures)
            if doubtful and write.marker not in found:
                self.gone |= {write.marker, fact_marker(write.marker)}
        self.kept = {m: owner for m, owner in self.kept.items() if m not in self.gone}
        assert found & self.gone == set(), "what was erased is there again"
        for owner in OWNERS:
            await self._check(owner)

    def _check_requests(self, gone: set[str], since: int) -> None:
        asked = " ".join(self.model.requests[since:])
        assert set(MARKER.findall(asked)) & gone == set(), "a model was asked about what was erased"

    async def _check(self, owner: Owner) -> None:
        """All that was kept is there, and was extracted and digested once."""
        counted = await account(self.where, owner)
        counted.check()
        kept = {marker for marker, of in self.kept.items() if of == owner}
        assert counted.last == len(kept)
        said = await self._markers(owner, "SELECT content FROM turns t", "t.session_ref = s.id")
        digested = await self._markers(
            owner,
            "SELECT summary FROM digests d",
            "d.session_ref = s.id AND d.version = s.digest_version",
        )
        assert set(said) | set(digested) == kept
        assert len(digested) == len(set(digested)) == len(counted.digested)
        facts = await self._markers(
            owner,
            "SELECT text FROM facts f",
            "(f.principal, f.agent, f.session) = (s.principal, s.agent, s.session)",
        )
        made = {fact_marker(marker) for marker in kept}
        assert len(facts) == len(set(facts))
        assert set(facts) <= made
        assert len(facts) + len(made & self.gone) == len(counted.extracted)

    async def _markers(self, owner: Owner, select: str, of_session: str) -> list[str]:
        rows = await fetch(
            self.where,
            f"{select} JOIN sessions s ON {of_session} "
            "WHERE s.principal = $1 AND s.agent = $2 AND s.session = $3",
            owner.principal,
            owner.agent,
            owner.session,
        )
        return [marker for row in rows for marker in MARKER.findall(row[0])]
