"""A deployed store: talking to it through its Service, and looking into its database."""

import asyncio
import json
import subprocess
import time
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import httpx

from kaos_dev.service_process import free_port
from tests.e2e import target
from tests.e2e.cluster import environment
from tests.e2e.cluster.paths import existing_kubeconfig
from tests.e2e.failure import check

AGENT = "kaos://agent/acme/helper"
_DATABASE = "kaos-memory-pgvector"
_PORT = 8080
_SETTLE_SECONDS = 240.0


@dataclass(frozen=True)
class Store:
    """One tenant's store, by its endpoint in the cluster."""

    endpoint: str

    @property
    def service(self) -> str:
        """The Service's name."""
        return (urlsplit(self.endpoint).hostname or "").split(".")[0]

    @property
    def namespace(self) -> str:
        """The tenant's namespace."""
        return (urlsplit(self.endpoint).hostname or "").split(".")[1]

    @asynccontextmanager
    async def client(self) -> AsyncGenerator[httpx.AsyncClient]:
        """A client of the Service: by its address on this machine's node, else forwarded."""
        found = await asyncio.to_thread(self._get, "service", self.service)
        address = found["spec"]["clusterIP"]
        async with self._client(f"service/{self.service}", address, _PORT) as client:
            yield client

    @asynccontextmanager
    async def replica(self, pod: str, port: int = _PORT) -> AsyncGenerator[httpx.AsyncClient]:
        """A client of one replica, ready or not: the Service sends nothing to one that is not."""
        found = await asyncio.to_thread(self._get, "pod", pod)
        address = found["status"]["podIP"]
        async with self._client(f"pod/{pod}", address, port) as client:
            yield client

    def rows(self, query: str) -> list[dict[str, Any]]:
        """What the database holds, as its superuser sees it: row-level security set aside."""
        statement = f"SELECT coalesce(json_agg(t), '[]') FROM ({query}) t"
        found = target.kubectl(
            *("-n", self.namespace, "exec", f"pod/{_DATABASE}-0", "--"),
            *("sh", "-c", 'PGOPTIONS="-c search_path=kaos_memory,public" exec psql "$@"', "psql"),
            *("-U", "postgres", "-d", "kaos", "-XAtqc", statement),
        )
        return json.loads(found)

    def tables(self) -> list[str]:
        """The names of the store's tables."""
        found = self.rows(
            "SELECT relname FROM pg_class WHERE relnamespace = 'kaos_memory'::regnamespace "
            "AND relkind IN ('r', 'p') AND NOT relispartition"
        )
        return [row["relname"] for row in found]

    async def settled(self) -> None:
        """Wait until no background work is due."""
        deadline = time.monotonic() + _SETTLE_SECONDS
        while True:
            rows = await asyncio.to_thread(
                self.rows, "SELECT dead, last_error FROM work WHERE NOT waiting"
            )
            dead = [row["last_error"] for row in rows if row["dead"]]
            check(not dead, f"background work is dead: {dead}")
            if not rows:
                return
            check(time.monotonic() < deadline, f"{len(rows)} pieces of work are still due")
            await asyncio.sleep(0.5)

    def pods(self) -> list[str]:
        """The names of the store's running replicas."""
        return list(self.restarts())

    def restarts(self) -> dict[str, int]:
        """How often the container of each running replica was started again."""
        return {
            pod["metadata"]["name"]: pod["status"]["containerStatuses"][0]["restartCount"]
            for pod in target.objects("pods", "-n", self.namespace)
            if pod["metadata"]["name"].startswith(f"{self.service}-")
            and not pod["metadata"].get("deletionTimestamp")
            and "containerStatuses" in pod["status"]
        }

    def ready_replicas(self) -> int:
        """How many replicas the Service sends requests to."""
        return self._get("deployment", self.service)["status"].get("readyReplicas", 0)

    def scale_database(self, replicas: int) -> None:
        """Stop the database (0) or start it again (1), and wait until it is so."""
        count = f"--replicas={replicas}"
        target.kubectl("-n", self.namespace, "scale", "statefulset", _DATABASE, count)

        def scaled() -> bool:
            status = self._get("statefulset", _DATABASE)["status"]
            return status.get("readyReplicas", 0) == status["replicas"] == replicas

        target.until(f"{replicas} databases", scaled)

    def _get(self, kind: str, name: str) -> dict[str, Any]:
        return json.loads(target.kubectl("-n", self.namespace, "get", kind, name, "-ojson"))

    @asynccontextmanager
    async def _client(
        self, forwarded: str, address: str, port: int
    ) -> AsyncGenerator[httpx.AsyncClient]:
        async with AsyncExitStack() as stack:
            url = f"http://{address}:{port}"
            if existing_kubeconfig():
                url = await stack.enter_async_context(_forwarded(self.namespace, forwarded, port))
            # No connection is kept, so that each request is balanced anew over the replicas.
            limits = httpx.Limits(max_keepalive_connections=0)
            client = httpx.AsyncClient(base_url=url, timeout=10, limits=limits)
            yield await stack.enter_async_context(client)


def attribution(user: str, session: str) -> dict[str, str]:
    """Who a turn of this user is written for."""
    return {"principal": user, "agent_client_id": AGENT, "session_id": session}


@asynccontextmanager
async def _forwarded(namespace: str, to: str, to_port: int) -> AsyncGenerator[str]:
    port = free_port()
    process = subprocess.Popen(  # noqa: ASYNC220 - starts at once, and is awaited below
        [
            *(environment.kubectl(), "--kubeconfig", environment.kubeconfig(), "-n", namespace),
            *("port-forward", to, f"{port}:{to_port}"),
        ],
        stdout=subprocess.DEVNULL,
    )
    try:
        async with httpx.AsyncClient() as probe, asyncio.timeout(30):
            while True:
                try:
                    await probe.get(f"http://127.0.0.1:{port}/healthz")
                    break
                except httpx.TransportError:
                    await asyncio.sleep(0.1)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()
