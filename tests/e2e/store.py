"""A deployed store: talking to it through its Service, and looking into its database."""

import asyncio
import json
import subprocess
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import httpx

from kaos_dev.service_process import free_port
from tests.e2e import target
from tests.e2e.cluster import environment
from tests.e2e.cluster.paths import existing_kubeconfig

AGENT = "kaos://agent/acme/helper"
_DATABASE = "pod/kaos-memory-pgvector-0"


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
        if existing_kubeconfig():
            async with _forwarded(self.namespace, self.service) as url:
                yield httpx.AsyncClient(base_url=url, timeout=10)
            return
        found = target.kubectl("-n", self.namespace, "get", "service", self.service, "-ojson")
        address = json.loads(found)["spec"]["clusterIP"]
        # No connection is kept, so that each request is balanced anew over the replicas.
        limits = httpx.Limits(max_keepalive_connections=0)
        async with httpx.AsyncClient(
            base_url=f"http://{address}:8080", timeout=10, limits=limits
        ) as client:
            yield client

    def rows(self, query: str) -> list[dict[str, Any]]:
        """What the database holds, as its superuser sees it: row-level security set aside."""
        statement = f"SELECT coalesce(json_agg(t), '[]') FROM ({query}) t"
        found = target.kubectl(
            *("-n", self.namespace, "exec", _DATABASE, "--"),
            *("sh", "-c", 'PGOPTIONS="-c search_path=kaos_memory,public" exec psql "$@"', "psql"),
            *("-U", "postgres", "-d", "kaos", "-XAtqc", statement),
        )
        return json.loads(found)

    def pods(self) -> list[str]:
        """The names of the store's running replicas."""
        found = target.objects("pods", "-n", self.namespace)
        return [
            pod["metadata"]["name"]
            for pod in found
            if pod["metadata"]["name"].startswith(f"{self.service}-")
            and not pod["metadata"].get("deletionTimestamp")
        ]


def attribution(user: str, session: str) -> dict[str, str]:
    """Who a turn of this user is written for."""
    return {"principal": user, "agent_client_id": AGENT, "session_id": session}


@asynccontextmanager
async def _forwarded(namespace: str, service: str) -> AsyncGenerator[str]:
    port = free_port()
    process = subprocess.Popen(  # noqa: ASYNC220 - starts at once, and is awaited below
        [
            *(environment.kubectl(), "--kubeconfig", environment.kubeconfig(), "-n", namespace),
            *("port-forward", f"service/{service}", f"{port}:8080"),
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
