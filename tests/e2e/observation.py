"""What operators see of a store: its replicas' metrics and memory, and the commands in them."""

import json
import re

from kaos_memory.contract import Erasure, ErasureLevel
from kaos_memory.telemetry.catalogue import OPERATION_DURATION
from tests.e2e import target
from tests.e2e.failure import check
from tests.e2e.steps import USERS
from tests.e2e.store import AGENT, Store

_METRICS_PORT = 9464


async def metrics(store: Store) -> str:
    """Each replica tells of the requests that it served, on a port of its own, and of nobody."""
    series = peak = 0
    for pod in store.pods():
        async with store.replica(pod, _METRICS_PORT) as client:
            answer = await client.get("/metrics")
        check(answer.status_code == 200, f"/metrics of {pod} answered {answer.status_code}")
        served = f'{OPERATION_DURATION.family}_count{{operation="write",outcome="ok"'
        check(served in answer.text, f"/metrics of {pod} tells of no write")
        for name in (*USERS, AGENT):
            check(name not in answer.text, f"/metrics of {pod} names {name}")
        series = max(series, len(re.findall(r"^[^#\s]", answer.text, re.MULTILINE)))
        peak = max(peak, _peak_mebibytes(store, pod))
    return f"{series} series of each replica; at most {peak} MiB resident"


def commands(store: Store) -> str:
    """Commands run in a replica's container with its environment; once a user was forgotten."""
    work = json.loads(_run(store, "work", "list", "--json"))
    check(work["items"] == [], f"background work is dead: {work['items'][:3]}")
    exported = _run(store, "erasures", "export")
    receipts = [Erasure.model_validate_json(line) for line in exported.splitlines()]
    levels = [receipt.level for receipt in receipts]
    check(levels == [ErasureLevel.USER], f"receipts of {levels} instead of one user")
    for name in (*USERS, AGENT):
        check(name not in exported, f"a receipt names {name}")
    return "no dead work, one receipt"


def _run(store: Store, *command: str) -> str:
    pod = store.pods()[0]
    return target.kubectl("-n", store.namespace, "exec", pod, "--", "kaos-memory", *command)


def _peak_mebibytes(store: Store, pod: str) -> int:
    arguments = ("exec", pod, "--", "cat", "/proc/1/status")
    status = target.kubectl("-n", store.namespace, *arguments)
    found = re.search(r"^VmHWM:\s+(\d+) kB$", status, re.MULTILINE)
    check(found, "the kernel does not say how much memory the replica takes")
    return int(found[1]) // 1024 if found else 0
