"""Build container images without a Docker engine; keep them as archives outside the checkout."""

import tempfile
from collections.abc import Mapping
from pathlib import Path

from tests.e2e.cluster import registries
from tests.e2e.cluster.commands import run
from tests.e2e.cluster.paths import image_cache


def archive_path(tag: str, key: str) -> Path:
    """Return where the archive of image `tag` with content `key` belongs."""
    return image_cache() / "archives" / f"{_file_name(tag)}@{key}.tar"


def build(
    tag: str,
    dockerfile: Path,
    context: Path,
    *,
    build_args: Mapping[str, str] | None = None,
    target: str | None = None,
) -> str:
    """Build `dockerfile` and return the image's id. Unchanged layers are taken from the cache.

    Images that are not there are never pulled: a name that was not built before is an error.
    """
    with tempfile.NamedTemporaryFile(prefix="kaos-image-id-") as result:
        run(
            *_buildah("build"),
            "--layers",
            "--force-rm",
            "--quiet",
            "--pull-never",
            "--format=oci",
            # Builds need the machine's own way to the registries, which may be a local proxy.
            "--network=host",
            "--isolation=chroot",
            *(f"--volume={here}:{there}:{mode}" for here, there, mode in registries.mounts()),
            *(f"--build-arg={name}={value}" for name, value in (build_args or {}).items()),
            *([f"--target={target}"] if target else []),
            f"--iidfile={result.name}",
            f"--tag={tag}",
            f"--file={dockerfile}",
            context,
            environment=_environment(),
        )
        return Path(result.name).read_text().strip().removeprefix("sha256:")


def export(tag: str, archive: Path) -> None:
    """Write image `tag` to `archive` and delete the archives of its earlier versions."""
    archive.parent.mkdir(parents=True, exist_ok=True)
    partial = archive.with_suffix(".partial")
    partial.unlink(missing_ok=True)
    destination = f"docker-archive:{partial}:{tag}"
    run(*_buildah("push"), "--quiet", tag, destination, environment=_environment())
    partial.rename(archive)
    for earlier in archive.parent.glob(f"{_file_name(tag)}@*"):
        if earlier != archive:
            earlier.unlink()


def in_storage(tag: str) -> bool:
    """Whether the builder's own storage has image `tag`, for others to build on."""
    listed = run(*_buildah("images"), "--format={{.Name}}:{{.Tag}}", environment=_environment())
    return tag in listed.split()


def _buildah(command: str) -> list[str | Path]:
    storage = image_cache() / "storage"
    # Storage of its own: nothing is left in, nor taken from, the one of the machine's user. And a
    # mount namespace of its own: whatever it mounts is gone when it ends, however it ends.
    return [
        "unshare",
        "--mount",
        "buildah",
        "--root",
        storage / "root",
        "--runroot",
        storage / "run",
        "--storage-driver=overlay",
        command,
    ]


def _environment() -> dict[str, str]:
    scratch = image_cache() / "scratch"
    scratch.mkdir(parents=True, exist_ok=True)
    return {"TMPDIR": str(scratch)}  # `RUN --mount=type=cache` keeps its folders there, too


def _file_name(tag: str) -> str:
    return tag.replace("/", "_").replace(":", "_")
