"""A store on this machine: PostgreSQL, a model endpoint, and the service that a stack renders.

The program runs on a stack's file with a recording monitor instead of the engine; the service
process then gets exactly the environment that a kubelet would give the rendered Deployment, with
the cluster's hosts replaced by loopback addresses.
"""

from collections.abc import Callable, Generator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from kaos_dev.embedded_postgres import EmbeddedPostgres
from kaos_dev.kubelet import loopback
from kaos_dev.model_endpoint import ModelEndpoint, model_endpoint
from kaos_dev.render import render
from kaos_dev.service_process import ServiceProcess, require_free_port

STACK = "stacks/Pulumi.demo.yaml"
_STORE = "memorystore-support"
_LIBRARIES = ("MEM0_DIR",)
"""Variables of the container that are paths in it; outside they lie in the demo's folder."""
_HOPELESS_ATTEMPTS = 3
"""After so many the reason is told. An endpoint's refusal is retried for ever: it may pass."""
_WORK = f"""
    SELECT count(*),
        min(last_error) FILTER (WHERE lease IS NULL AND (dead OR attempts >= {_HOPELESS_ATTEMPTS}))
    FROM kaos_memory.work WHERE NOT waiting
"""  # noqa: S608 - a constant


@dataclass(frozen=True)
class BackgroundWork:
    """What the service has yet to do."""

    pending: int
    failure: str | None
    """Why some of it fails again and again."""


@dataclass(frozen=True)
class Environment:
    """What runs."""

    service: ServiceProcess
    models: ModelEndpoint
    postgres: EmbeddedPostgres
    database: str

    def background_work(self) -> BackgroundWork:
        """Look into the service's table of work, past its row-level security."""
        pending, _, failure = self.postgres.execute(_WORK, self.database).partition("|")
        return BackgroundWork(int(pending), failure or None)


@contextmanager
def running(
    folder: Path, progress: Callable[[str], None], port: int | None = None
) -> Generator[Environment]:
    """Start everything, and end it afterwards.

    Args:
        folder: For the service's log and the files of its libraries.
        progress: Told each step as it begins.
        port: The service's; omitted, a free one.

    Raises:
        PortInUseError: somebody else listens on the port.
        ModelEndpointError: the user's endpoint does not do.
    """
    if port is not None:
        require_free_port(port)
    with ExitStack() as stack:
        models = stack.enter_context(model_endpoint(progress))
        progress("Starting PostgreSQL with pgvector")
        postgres = stack.enter_context(EmbeddedPostgres())
        progress(f"Rendering {STACK}")
        environment = _rendered(models)
        database = _create_database(postgres, environment)
        for name in _LIBRARIES:
            if name in environment:
                environment[name] = str(folder / name.lower())
        progress("Starting the service")
        process = ServiceProcess(_relocated(environment, models, postgres), folder / "log", port)
        yield Environment(stack.enter_context(process), models, postgres, database)


def _rendered(models: ModelEndpoint) -> dict[str, str]:
    """The container's environment, as a kubelet would resolve it."""
    rendered = render(STACK, {"model_api_key": models.api_key})
    environment = rendered.container_environment(_STORE)
    if not models.bundled:
        environment["KAOS_MEMORY_MODELS_SUMMARIZATION_MODEL"] = models.chat_model
        environment["KAOS_MEMORY_MODELS_EMBEDDING_MODEL"] = models.embedding_model
        environment["KAOS_MEMORY_EXTERNAL_DIMS"] = str(models.embedding_dims)
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
