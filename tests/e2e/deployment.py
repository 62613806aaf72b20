"""The `dev` stack under the real Pulumi engine, with the images and the endpoint of the tests."""

import json
import subprocess
from pathlib import Path
from typing import Any

import yaml

from kaos_dev.conversations import locomo_path
from tests.e2e import models
from tests.e2e.cluster import environment
from tests.e2e.failure import E2EError
from tests.e2e.target import REPOSITORY, Images

STACK = "dev"
WINDOW_TOKENS = 256 if locomo_path().exists() else 64
"""The first tenant's window: so small that every session of the conversation overflows it."""

_SECONDS = 600


class Deployment:
    """A project of its own folder, with the repository's program and the committed stack's file.

    The engine writes into a stack's file and deletes it with the stack: never the committed one.
    """

    def __init__(self, folder: Path, images: Images, model_key: str) -> None:
        self._environment = environment.pulumi_environment(folder)
        self._folder = folder
        project = yaml.safe_load((REPOSITORY / "Pulumi.yaml").read_text())
        project["main"] = str(REPOSITORY / project["main"])
        (folder / "Pulumi.yaml").write_text(yaml.safe_dump(project))
        stacks = folder / project["stackConfigDir"]
        stacks.mkdir()
        (stacks / f"Pulumi.{STACK}.yaml").write_text(yaml.safe_dump(self._config(images)))
        self._pulumi("stack", "init", STACK, selected=False)
        self._pulumi("config", "set", "--secret", "model_api_key", model_key)

    def up(self, *, expect_no_changes: bool = False) -> dict[str, Any]:
        """Deploy; returns the stack's outputs."""
        flags = ["--expect-no-changes"] if expect_no_changes else []
        self._pulumi("up", "--yes", "--skip-preview", "--non-interactive", *flags)
        return json.loads(self._pulumi("stack", "output", "--json"))

    def preview_refreshed_without_changes(self) -> None:
        """Compare with the live cluster; raises where anything differs."""
        self._pulumi("preview", "--refresh", "--expect-no-changes", "--non-interactive")

    def destroy(self) -> None:
        """Delete everything and the stack itself; raises where the state holds anything still."""
        self._pulumi("destroy", "--yes", "--skip-preview", "--non-interactive")
        state = json.loads(self._pulumi("stack", "export"))
        left = [
            resource["urn"]
            for resource in state["deployment"].get("resources", [])
            if resource["type"] != "pulumi:pulumi:Stack"
        ]
        if left:
            raise E2EError(f"the state still holds {left}")
        self._pulumi("stack", "rm", "--yes")

    def exported(self) -> str:
        """The stack's state as text, as `pulumi stack export` shows it."""
        return self._pulumi("stack", "export")

    def _config(self, images: Images) -> dict[str, Any]:
        content = yaml.safe_load((REPOSITORY / "stacks" / f"Pulumi.{STACK}.yaml").read_text())
        config = content["config"]
        config["kaos:image"] = images.service
        if images.postgres:
            config["kaos:postgres_image"] = images.postgres
        for endpoint in config["kaos:model_apis"].values():
            endpoint["endpoint"] = models.ENDPOINT
        config["kaos:stores"][0]["short_term"]["token_budget"] = WINDOW_TOKENS
        return content

    def _pulumi(self, *arguments: str, selected: bool = True) -> str:
        done = subprocess.run(
            ["pulumi", *arguments, *(("--stack", STACK) if selected else ())],
            cwd=self._folder,
            env=self._environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=_SECONDS,
        )
        if done.returncode != 0:
            said = f"{done.stdout}\n{done.stderr}".strip()[-4_000:]
            raise E2EError(f"pulumi {' '.join(arguments[:2])} failed:\n{said}")
        return done.stdout
