"""Arguments and programs that the tests of the components start from."""

from collections.abc import Callable
from typing import Any, cast

import pulumi
import pulumi_kubernetes as k8s

from kaos_dev.recording import Recording, record
from kaos_dev.render import Rendered
from pulumi_kaos import MemoryStore, MemoryStoreArgs

DSN = "postgresql://kaos:p%40ss@db:5432/kaos"
KEY = "sk-1"


def store_args(**changes: Any) -> dict[str, Any]:
    """Return the least arguments of a store; keys with `__` set something inside."""
    args: dict[str, Any] = {
        "namespace": "acme",
        "image": "registry/kaos-memorystore:1",
        "storage": {
            "type": "external",
            "external": {"connection_secret_ref": {"name": "pgvector-dsn", "key": "dsn"}},
        },
        "models": {
            "summarization": {"model_api": {"endpoint": "http://models/v1"}, "model": "chat"},
            "embedding": {"model_api": {"endpoint": "http://models/v1"}, "model": "embed"},
        },
        "auth": {"mode": "disabled"},
    }
    for path, value in changes.items():
        group, *rest = path.split("__")
        target = args
        for part in rest:
            target = target.setdefault(group, {})
            group = part
        target[group] = dict(value) if isinstance(value, dict) else value
    return args


def store(args: dict[str, Any], name: str = "support") -> MemoryStore:
    return MemoryStore(name, cast("MemoryStoreArgs", args))


def secrets() -> None:
    """Create the Secrets that the sample arguments refer to."""
    for name, entries in {
        "pgvector-dsn": {"dsn": DSN},
        "other": {"dsn": "postgresql://other", "url": "http://other/v1"},
        "keys": {"key": KEY},
    }.items():
        k8s.core.v1.Secret(
            f"sample-{name}",
            metadata=k8s.meta.v1.ObjectMetaArgs(name=name, namespace="acme"),
            string_data=entries,
        )


def rendered(program: Callable[[], Any], *, preview: bool = False) -> Rendered:
    return Rendered(recorded(program, preview=preview))


def recorded(program: Callable[[], Any], *, preview: bool = False) -> Recording:
    def run() -> None:
        program()

    return record(run, preview=preview)


def environment(args: dict[str, Any], name: str = "support") -> dict[str, str]:
    """Return what the store's container would get."""

    def program() -> None:
        secrets()
        store(args, name)

    return rendered(program).container_environment(f"memorystore-{args.get('name', name)}")


def unknown_in_preview(text: str) -> pulumi.Output[str]:
    """Return an output that a preview does not know."""
    config = k8s.core.v1.ConfigMap("unknown", metadata=k8s.meta.v1.ObjectMetaArgs(name="unknown"))
    return config.id.apply(lambda _: text)
