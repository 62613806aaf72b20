"""What a replica shows of itself: its metrics, and the memory that it takes."""

import re

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


def _peak_mebibytes(store: Store, pod: str) -> int:
    command = ("cat", "/proc/1/status")
    status = target.kubectl("-n", store.namespace, "exec", pod, "--", *command)
    found = re.search(r"^VmHWM:\s+(\d+) kB$", status, re.MULTILINE)
    check(found, "the kernel does not say how much memory the replica takes")
    return int(found[1]) // 1024 if found else 0
