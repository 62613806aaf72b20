"""A store on this machine: PostgreSQL, a model endpoint, and the service that a stack renders.

The program runs on a stack's file with a recording monitor instead of the engine; the service
process then gets exactly the environment that a kubelet would give the rendered Deployment, with
the cluster's hosts replaced by loopback addresses.
"""

import os
from collections.abc import Callable, Generator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from kaos_dev.embedded_postgres import EmbeddedPostgres
from kaos_dev.kubelet import loopback
from kaos_dev.model_server import ModelServer
from kaos_dev.model_server.models import CHAT_MODEL, EMBEDDING_MODEL
from kaos_dev.render import render
from kaos_dev.service_process import ServiceProcess

STACK = "stacks/Pulumi.demo.yaml"
_STORE = "memorystore-support"
_LIBRARIES = ("MEM0_DIR",)
"""Variables of the container that are paths in it; outside they lie in the demo's folder."""


@dataclass(frozen=True)
class ModelEndpoint:
    """Where the models answer."""

    url: str
    api_key: str
    bundled: bool


@dataclass(frozen=True)
class Environment:
    """What runs."""

    service: ServiceProcess
    models: ModelEndpoint
    postgres: EmbeddedPostgres
    database: str


@contextmanager
def running(
    folder: Path, progress: Callable[[str], None], port: int | None = None
) -> Generator[Environment]:
    """Start everything, and end it afterwards.

    Args:
        folder: For the service's log and the files of its libraries.
        progress: Told each step as it begins.
        port: The service's; omitted, a free one.
    """
    with ExitStack() as stack:
        progress("Starting PostgreSQL with pgvector")
        postgres = stack.enter_context(EmbeddedPostgres())
        models = stack.enter_context(_models(progress))
        progress(f"Rendering {STACK}")
        environment = _rendered(models)
        database = _create_database(postgres, environment)
        for name in _LIBRARIES:
            if name in environment:
                environment[name] = str(folder / name.lower())
        progress("Starting the service")
        process = ServiceProcess(_relocated(environment, models, postgres), folder / "log", port)
        yield Environment(stack.enter_context(process), models, postgres, database)


@contextmanager
def _models(progress: Callable[[str], None]) -> Generator[ModelEndpoint]:
    """The user's endpoint where the usual variables name one, else the bundled server."""
    url = os.environ.get("OPENAI_BASE_URL")
    if url:
        progress(f"Using the model endpoint of OPENAI_BASE_URL ({urlsplit(url).hostname})")
        yield ModelEndpoint(url, os.environ.get("OPENAI_API_KEY", ""), bundled=False)
        return
    progress("Starting the bundled model server")
    with ModelServer() as server:
        yield ModelEndpoint(server.url, server.api_key, bundled=True)


def _rendered(models: ModelEndpoint) -> dict[str, str]:
    """The container's environment, as a kubelet would resolve it."""
    rendered = render(STACK, {"model_api_key": models.api_key})
    environment = rendered.container_environment(_STORE)
    if not models.bundled:
        environment["KAOS_MEMORY_MODELS_SUMMARIZATION_MODEL"] = os.environ.get(
            "OPENAI_CHAT_MODEL", "gpt-4o-mini"
        )
        environment["KAOS_MEMORY_MODELS_EMBEDDING_MODEL"] = os.environ.get(
            "OPENAI_EMBEDDING_MODEL", "text-embedding-3-small"
        )
    return environment


def _create_database(postgres: EmbeddedPostgres, environment: Mapping[str, str]) -> str:
    """What the DevPostgres of the stack would hold: the DSN's role and its database."""
    dsn = urlsplit(environment["KAOS_MEMORY_EXTERNAL_DSN"])
    database = unquote(dsn.path.removeprefix("/"))
    owner, password = unquote(dsn.username or ""), unquote(dsn.password or "")
    postgres.create_owner(owner, password)
    postgres.create_database(database, owner=owner)
    return database


def _relocated(
    environment: Mapping[str, str], models: ModelEndpoint, postgres: EmbeddedPostgres
) -> dict[str, str]:
    database = urlsplit(environment["KAOS_MEMORY_EXTERNAL_DSN"]).hostname or ""
    endpoint = environment["KAOS_MEMORY_MODELS_SUMMARIZATION_BASE_URL"]
    cluster = urlsplit(endpoint).hostname or ""
    moved = loopback(
        environment,
        {database: f"127.0.0.1:{postgres.port}", cluster: urlsplit(models.url).netloc},
    )
    if not models.bundled:
        for role in ("SUMMARIZATION", "EMBEDDING"):
            moved[f"KAOS_MEMORY_MODELS_{role}_BASE_URL"] = models.url
    return moved


BUNDLED_MODELS = f"{CHAT_MODEL} (rules, no language model) and {EMBEDDING_MODEL} (a real embedder)"
