"""The published package `kaos-memory` in a virtual environment of its own, built once.

It needs Python 3.12 and must never share an environment with ours: both import as
`kaos_memory`. Environments lie outside the checkout, in folders named by what is in them.
"""

import contextlib
import functools
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

VERSION = "0.8.4"
CLIENT = (f"kaos-memory=={VERSION}",)
"""Its contract and its client."""
SERVICE = (f"kaos-memory[service]=={VERSION}",)
"""All of it."""
PYTHON_VERSION = (3, 12)

_BUILD_SECONDS = 300


class PeerUnavailableError(RuntimeError):
    """The environment could not be built. The message has the installer's output."""


@functools.cache
def find_python() -> Path | None:
    """An interpreter of Python 3.12 on this machine, or None."""
    return next((found for each in _candidates() if (found := _answering(each))), None)


def environment(requirements: Sequence[str], *, without_dependencies: Sequence[str] = ()) -> Path:
    """The interpreter of an environment with these packages; the first call builds it.

    Args:
        requirements: What is installed, with dependencies.
        without_dependencies: What is installed beside it for the files that its wheels carry.

    Raises:
        PeerUnavailableError: there is no Python 3.12, or the packages cannot be installed.
    """
    base = find_python()
    if base is None:
        raise PeerUnavailableError("no Python 3.12 on PATH, in pyenv or known to uv")
    contents = "\n".join([str(base), *requirements, "--", *without_dependencies])
    folder = _cache() / f"peer-{hashlib.sha256(contents.encode()).hexdigest()[:16]}"
    if not folder.exists():
        _build(base, folder, requirements, without_dependencies)
    return folder / "bin" / "python"


def _build(
    base: Path, folder: Path, requirements: Sequence[str], without_dependencies: Sequence[str]
) -> None:
    """Build beside the final place and rename: nobody ever sees half an environment."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    building = Path(tempfile.mkdtemp(prefix=f"{folder.name}-", dir=folder.parent))
    try:
        # Relocatable, because it is moved; the interpreter finds its packages by its own place.
        _uv("venv", "--quiet", "--relocatable", "--python", str(base), str(building / "env"))
        install = ("pip", "install", "--quiet", "--python", str(building / "env/bin/python"))
        _uv(*install, *requirements)
        if without_dependencies:
            _uv(*install, "--no-deps", *without_dependencies)
        # Another process may have been faster; its environment is as good.
        with contextlib.suppress(OSError):
            (building / "env").rename(folder)
    finally:
        shutil.rmtree(building)


def _uv(*arguments: str) -> None:
    on_path = shutil.which("uv")
    if on_path is None and importlib.util.find_spec("uv") is None:
        raise PeerUnavailableError("uv is neither on PATH nor a module of this interpreter")
    command = [on_path] if on_path else [sys.executable, "-m", "uv"]
    done = subprocess.run(
        [*command, *arguments], capture_output=True, text=True, timeout=_BUILD_SECONDS, check=False
    )
    if done.returncode != 0:
        raise PeerUnavailableError(f"uv {' '.join(arguments)} failed:\n{done.stderr.strip()}")


def _cache() -> Path:
    own = os.environ.get("KAOS_CACHE_DIR")
    if own:
        return Path(own)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kaos"


def _candidates() -> Iterator[Path]:
    minor = ".".join(map(str, PYTHON_VERSION))
    if on_path := shutil.which(f"python{minor}"):
        yield Path(on_path)
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    yield from sorted(pyenv.glob(f"versions/{minor}.*/bin/python{minor}"), reverse=True)
    if uv := shutil.which("uv"):
        found = _output([uv, "python", "find", "--no-project", minor])
        if found:
            yield Path(found)


def _answering(candidate: Path) -> Path | None:
    """The real interpreter behind a name, which may be a shim that runs nothing."""
    code = "import sys; print(*sys.version_info[:2]); print(sys.executable)"
    version, _, executable = _output([str(candidate), "-c", code]).partition("\n")
    return Path(executable) if version == " ".join(map(str, PYTHON_VERSION)) else None


def _output(command: Sequence[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
