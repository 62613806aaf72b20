"""The images of the end-to-end tests: what they are made of, building them, loading them."""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.e2e.cluster import containerd, image_builds, requirements, rootfs, tools
from tests.e2e.cluster.locks import exclusive
from tests.e2e.cluster.paths import IMAGES, existing_kubeconfig, image_cache
from tests.e2e.cluster.processes import running

BASE_TAG = "localhost/kaos-base:test"
PGVECTOR_TAG = "localhost/kaos-pgvector:test"


@dataclass(frozen=True)
class Image:
    """An image of `tests/e2e/images`. Its few inputs are known: a hash tells if it is current."""

    tag: str
    folder: Path
    """Holds the Dockerfile, and what it copies unless `context` makes that."""
    context: Callable[[], Path] | None = None
    inputs: Callable[[], str] = str
    """Hash of what is not in `folder`."""
    base: "Image | None" = None

    @property
    def archive(self) -> Path:
        """Where the built image is, or will be, by the hash of all inputs."""
        return image_builds.archive_path(self.tag, self._digest())

    def ensure(self) -> Path:
        """Return the archive, built now unless it is current."""
        if self.archive.is_file() and image_builds.in_storage(self.tag):
            return self.archive
        if self.base:
            self.base.ensure()
        context = self.context() if self.context else self.folder
        image_builds.build(
            self.tag, self.folder / "Dockerfile", context, build_args=_base_argument(self.base)
        )
        image_builds.export(self.tag, self.archive)
        return self.archive

    def _digest(self) -> str:
        state = hashlib.sha256(f"{self.tag}\0{self.inputs()}\0".encode())
        state.update(self.base._digest().encode() if self.base else b"")
        for path in sorted(self.folder.iterdir()):
            state.update(f"{path.name}\0{path.stat().st_mode}\0".encode() + path.read_bytes())
        return state.hexdigest()[:16]


def _tool_image(tool: tools.Tool) -> Image:
    def binaries() -> Path:
        tools.build(tool)
        return tool.folder

    tag = f"localhost/{tool.name}:test"
    return Image(tag, IMAGES / tool.name, binaries, lambda: tool.digest)


PAUSE = _tool_image(tools.PAUSE)
COREDNS = _tool_image(tools.COREDNS)
BASE = Image(BASE_TAG, IMAGES / "base", rootfs.create, rootfs.digest)
PGVECTOR = Image(PGVECTOR_TAG, IMAGES / "pgvector", base=BASE)

SYSTEM_IMAGES = (PAUSE, COREDNS)
"""What the cluster itself needs to become ready."""
ALL_IMAGES = (*SYSTEM_IMAGES, BASE, PGVECTOR)


def ensure(image: Image) -> Path:
    """Build `image` unless it is current, and load it into the cluster if that runs."""
    requirements.require(requirements.BUILD_PACKAGES)
    with exclusive(_lock()):
        archive = image.ensure()
        _load_if_up(archive)
    return archive


def build_and_load(
    tag: str,
    dockerfile: Path,
    context: Path,
    *,
    build_args: Mapping[str, str] | None = None,
    target: str | None = None,
) -> Path:
    """Build a Dockerfile of the repository and load it; return the image's archive.

    The Dockerfile begins with `ARG BASE_IMAGE=python:3.x-slim` and `FROM ${BASE_IMAGE}`; here it
    gets the Debian base of the tests. It is always built, from cached layers as far as possible,
    so that a changed source is never missed. `tag` is a full name such as
    `localhost/kaos-memorystore:test`; pods need `imagePullPolicy: IfNotPresent` or `Never`.
    """
    requirements.require(requirements.BUILD_PACKAGES)
    arguments = {**_base_argument(BASE), **(build_args or {})}
    with exclusive(_lock()):
        BASE.ensure()
        key = image_builds.build(tag, dockerfile, context, build_args=arguments, target=target)
        archive = image_builds.archive_path(tag, key[:16])
        if not archive.is_file():
            image_builds.export(tag, archive)
        _load_if_up(archive)
    return archive


def _lock() -> Path:
    return image_cache() / "lock"


def _base_argument(base: Image | None) -> dict[str, str]:
    return {"BASE_IMAGE": base.tag} if base else {}


def _load_if_up(archive: Path) -> None:
    if existing_kubeconfig():
        print(f"Load {archive} into your cluster by its own means, e.g. `kind load image-archive`.")
    elif running("containerd"):
        containerd.load(archive)
