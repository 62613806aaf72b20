"""The steps at which a service can be made to crash are those of the real operations, in order."""

from kaos_dev.crash_points import STEPS, stepping
from kaos_memory.contract import ScopeLevel
from kaos_memory.storage.protocol import Storage
from kaos_memory.tiers.reach import Owners, Reach

from ..service.storage.driving import ALICE, turns, work_off


async def test_a_write_its_work_and_its_erasure_pass_every_step_in_order(storage: Storage):
    passed: list[str] = []

    async def reached(step: str) -> None:
        passed.append(step)

    with stepping(reached):
        await storage.append(ALICE, turns("1", "2", "3", "4", "5", "6"))
        assert await work_off(storage) == 2
        await storage.erase(Reach(ScopeLevel.USER, Owners("alice"), None), dry_run=False)
    claim = ["claim.begun", "claim.before_commit", "claim.after_commit"]
    work = {
        kind: [f"{kind}.{at}" for at in ("loaded", "answered", "before_commit", "after_commit")]
        for kind in ("fold", "extract")
    }
    first, second = ("fold", "extract") if passed[6] == "fold.loaded" else ("extract", "fold")
    assert passed == [
        *("write.begun", "write.before_commit", "write.after_commit"),
        *(*claim, *work[first], *claim, *work[second], *claim),
        *("erase.begun", "erase.before_commit", "erase.after_commit"),
    ]
    assert set(passed) == set(STEPS)
