"""What the `pulumi` command needs around it to run here: its tools, its plugins, its settings."""

import os
import shlex
import sys
from pathlib import Path

from tests.e2e.cluster import pki, tools
from tests.e2e.cluster.errors import ClusterError
from tests.e2e.cluster.paths import PACKAGE, existing_kubeconfig

PASSPHRASE = "kaos-e2e"
"""Protects the throw-away state of tests."""

_STAND_INS = {
    "pulumi-language-python": PACKAGE / "language_host.py",
    "pulumi-resource-random": PACKAGE / "random_provider.py",
}


def kubectl() -> Path:
    """Return the path of kubectl."""
    return _built(tools.KUBERNETES).binary("kubectl")


def kubeconfig() -> Path:
    """Return the kubeconfig of the cluster that tests use, existing or our own."""
    return existing_kubeconfig() or pki.ADMIN_KUBECONFIG


def pulumi_environment(folder: Path) -> dict[str, str]:
    """Return a complete environment for `pulumi`, kubectl and programs that call them.

    State, credentials, plugins and the stand-ins' launchers go below `folder` (a test's temporary
    folder): nothing is read from or written to the user's own Pulumi home. The stand-ins run with
    this very Python, so it must have the Pulumi SDKs. Raises `ClusterError` if a tool is not built.
    """
    state, home, launchers = folder / "state", folder / "home", folder / "bin"
    for path in (state, home, launchers):
        path.mkdir(parents=True, exist_ok=True)
    for name, program in _STAND_INS.items():
        _write_launcher(launchers / name, program)
    wanted = (tools.PULUMI, tools.PULUMI_KUBERNETES, tools.KUBERNETES)
    folders = [launchers, *(_built(tool).folder for tool in wanted), Path(sys.executable).parent]
    inherited = {
        name: value for name, value in os.environ.items() if not name.startswith("PULUMI_")
    }
    return {
        **inherited,
        "PATH": os.pathsep.join([*(str(path) for path in folders), os.environ.get("PATH", "")]),
        "KUBECONFIG": str(kubeconfig()),
        "PULUMI_HOME": str(home),
        "PULUMI_BACKEND_URL": state.as_uri(),
        "PULUMI_CONFIG_PASSPHRASE": PASSPHRASE,
        "PULUMI_SKIP_UPDATE_CHECK": "true",
        "PULUMI_DISABLE_AUTOMATIC_PLUGIN_ACQUISITION": "true",
    }


def _built(tool: tools.Tool) -> tools.Tool:
    if not tool.built:
        raise ClusterError(f"{tool.name} is not built: run `python -m tests.e2e.cluster tools`")
    return tool


def _write_launcher(launcher: Path, program: Path) -> None:
    # -P: the folder of the stand-in must not shadow modules of the programs that it runs.
    command = shlex.join([sys.executable, "-P", str(program)])
    launcher.write_text(f'#!/bin/sh\nexec {command} "$@"\n')
    launcher.chmod(0o755)
