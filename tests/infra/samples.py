"""Stacks that the tests of the program run on."""

import json
from pathlib import Path
from typing import Any

import yaml

from kaos_dev.recording import Recording
from kaos_dev.render import REPOSITORY, Rendered, render

SECRETS = {"model_api_key": "sk-TAINT-key", "acme_dsn": "postgresql://TAINT-dsn@db/kaos"}


def dev(*, preview: bool = False) -> Rendered:
    config = {"image": "registry/kaos-memorystore:1", "model_api_key": SECRETS["model_api_key"]}
    return render("stacks/Pulumi.dev.yaml", config, preview=preview)


def demo(*, preview: bool = False) -> Rendered:
    config = {"model_api_key": SECRETS["model_api_key"]}
    return render("stacks/Pulumi.demo.yaml", config, preview=preview)


def store(**changes: Any) -> dict[str, Any]:
    """Return the least entry of `stores`."""
    role = {"model_api": "main", "model": "m"}
    return {
        "name": "support",
        "namespace": "acme",
        "database": {"dev_postgres": {}},
        "models": {"summarization": role, "embedding": role},
        "auth": {"mode": "disabled"},
        **changes,
    }


def stack(*stores: dict[str, Any], **config: Any) -> dict[str, Any]:
    """Return a stack's configuration; None removes a key."""
    values: dict[str, Any] = {
        "image": "registry/kaos-memorystore:1",
        "model_apis": {"main": {"endpoint": "http://models/v1", "api_key_from": "model_api_key"}},
        "stores": list(stores) or [store()],
        **config,
    }
    return {f"kaos:{key}": value for key, value in values.items() if value is not None}


def run(
    folder: Path,
    config: dict[str, Any],
    secrets: dict[str, str] | None = None,
    *,
    preview: bool = False,
    into: Recording | None = None,
) -> Rendered:
    """Run the program on a configuration; without secrets, with those of SECRETS it names."""
    path = folder / "Pulumi.test.yaml"
    path.write_text(yaml.safe_dump({"config": json.loads(json.dumps(config))}))
    if secrets is None:
        secrets = {name: value for name, value in SECRETS.items() if name in path.read_text()}
    return render(path, secrets, preview=preview, repository=REPOSITORY, into=into)
