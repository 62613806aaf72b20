"""Build the binaries that no package registry carries, from their Go modules, once per machine.

A tool's cache folder is named by the hash of everything that decides the binary. A build goes into
a temporary folder that is renamed into place when it is complete: a build that was cut off is done
again, a finished one never.
"""

import hashlib
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.e2e.cluster.commands import tail
from tests.e2e.cluster.errors import ClusterError
from tests.e2e.cluster.locks import exclusive
from tests.e2e.cluster.paths import PACKAGE, tool_cache

KUBERNETES_VERSION = "1.34.4"
PULUMI_VERSION = "3.274.1"
PROGRESS_SECONDS = 1.0


class ToolBuildError(ClusterError):
    """A tool did not build; the message ends with the tail of its log."""


@dataclass(frozen=True)
class Tool:
    """One Go module of `tools/` and the binaries that come out of it.

    All binaries are static (`CGO_ENABLED=0`): two of them become images without a file system
    around them, and one setting for all lets the builds share compiled packages.
    """

    name: str
    binaries: Mapping[str, str]
    """Name of each binary -> Go package that it is built from."""
    variables: Mapping[str, str]
    """Go variables set at link time, such as versions that other programs check."""

    @property
    def module(self) -> Path:
        """The folder with the tool's go.mod."""
        return PACKAGE / "tools" / self.name

    @property
    def ldflags(self) -> str:
        """Linker flags: no debug tables (half the size, a faster link), and the variables."""
        stamps = [f"-X {name}={value}" for name, value in sorted(self.variables.items())]
        return " ".join(["-s", "-w", *stamps])

    @property
    def digest(self) -> str:
        """Hash over the module's files and the recipe."""
        state = hashlib.sha256()
        for source in sorted(self.module.iterdir()):
            if source.name in {"go.mod", "go.sum"} or source.suffix == ".go":
                state.update(f"{source.name}\0".encode() + source.read_bytes() + b"\0")
        state.update(repr((sorted(self.binaries.items()), self.ldflags)).encode())
        return state.hexdigest()[:16]

    @property
    def folder(self) -> Path:
        """Where the finished binaries are."""
        return tool_cache() / f"{self.name}-{self.digest}"

    @property
    def built(self) -> bool:
        """Whether a finished build is in the cache."""
        return self.folder.is_dir()

    def binary(self, name: str) -> Path:
        """Return the path of one of the tool's binaries."""
        if name not in self.binaries:
            raise KeyError(f"{self.name} has no binary {name}; it has {sorted(self.binaries)}")
        return self.folder / name


_KUBERNETES_COMMANDS = (
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kubelet",
    "kube-proxy",
    "kubectl",
)

_KUBERNETES_MAJOR, _KUBERNETES_MINOR, _ = KUBERNETES_VERSION.split(".")

# Pulumi refuses a cluster that does not tell its version, so it is stamped in as a release does.
KUBERNETES = Tool(
    name="kubernetes",
    binaries={command: f"k8s.io/kubernetes/cmd/{command}" for command in _KUBERNETES_COMMANDS},
    variables={
        "k8s.io/component-base/version.gitVersion": f"v{KUBERNETES_VERSION}",
        "k8s.io/component-base/version.gitMajor": _KUBERNETES_MAJOR,
        "k8s.io/component-base/version.gitMinor": _KUBERNETES_MINOR,
    },
)
PULUMI = Tool(
    name="pulumi",
    binaries={"pulumi": "github.com/pulumi/pulumi/pkg/v3/cmd/pulumi"},
    variables={"github.com/pulumi/pulumi/sdk/v3/go/common/version.Version": f"v{PULUMI_VERSION}"},
)
COREDNS = Tool(name="coredns", binaries={"coredns": "."}, variables={})
KUBE_ROUTER = Tool(
    name="kube-router",
    binaries={"kube-router": "github.com/cloudnativelabs/kube-router/v2/cmd/kube-router"},
    variables={},
)
PAUSE = Tool(name="pause", binaries={"pause": "."}, variables={})
PULUMI_KUBERNETES = Tool(
    name="pulumi-kubernetes", binaries={"pulumi-resource-kubernetes": "."}, variables={}
)

TOOLS = (PAUSE, KUBERNETES, PULUMI, COREDNS, KUBE_ROUTER, PULUMI_KUBERNETES)


def build(tool: Tool, progress: Callable[[float], None] | None = None) -> float:
    """Build `tool` unless it is cached; return the seconds it took (0 if cached).

    `progress` is called about once a second with the seconds elapsed. Raises `ToolBuildError`.
    """
    if tool.built:
        return 0.0
    if shutil.which("go") is None:
        raise ToolBuildError(
            "Go is not on PATH. Install Go 1.26 or later from https://go.dev/dl and try again."
        )
    started = time.monotonic()
    with exclusive(tool_cache() / f"{tool.name}.lock"):
        for cut_off in tool_cache().glob(f".{tool.name}-*"):
            shutil.rmtree(cut_off)
        if not tool.built:  # by another process, while this one waited
            _build_now(tool, lambda: progress and progress(time.monotonic() - started))
    return time.monotonic() - started


def _build_now(tool: Tool, progress: Callable[[], object]) -> None:
    scratch = Path(tempfile.mkdtemp(prefix=f".{tool.name}-", dir=tool_cache()))
    for binary, package in tool.binaries.items():
        with _compiler(tool, package, scratch / binary) as compiler:
            while _runs(compiler):
                progress()
        if compiler.returncode:
            said = tail(_log(tool).read_text(errors="replace"))
            raise ToolBuildError(f"{tool.name}: {package} did not build\n{said}")
    scratch.chmod(0o755)
    scratch.rename(tool.folder)


def _log(tool: Tool) -> Path:
    return tool_cache() / f"{tool.name}.log"


@contextmanager
def _compiler(tool: Tool, package: str, target: Path) -> Generator[subprocess.Popen[bytes]]:
    """Start the compiler, and end it if the waiting is interrupted."""
    command = ("go", "build", "-p", "2", "-ldflags", tool.ldflags, "-o", str(target), package)
    with (
        _log(tool).open("wb") as log,
        subprocess.Popen(
            # Twenty minutes of compiler must not starve whatever else the machine does.
            ("nice", "-n", "10", *command),
            cwd=tool.module,
            env={**os.environ, "CGO_ENABLED": "0"},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
        ) as process,
    ):
        try:
            yield process
        finally:
            if process.poll() is None:
                process.terminate()


def _runs(process: subprocess.Popen[bytes]) -> bool:
    try:
        process.wait(timeout=PROGRESS_SECONDS)
    except subprocess.TimeoutExpired:
        return True
    return False
