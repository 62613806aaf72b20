"""`make image`: build the service's image, push it, and pin its digest in a stack's file."""

import json
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from kaos_dev.conversations import REPOSITORY
from kaos_dev.image_pin import PinError, pin

NAME = "kaos-memorystore"
_BUILDERS = ("docker", "podman", "buildah")

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


class ImageError(Exception):
    """What stopped the build, and what to do."""


@app.command()
def image(
    registry: Annotated[str, typer.Option(help="Where to push, for example registry.local/team.")],
    stack: Annotated[str, typer.Option(help="The stack whose file gets the digest.")] = "dev",
    *,
    insecure: Annotated[bool, typer.Option(help="Push without TLS, to a local registry.")] = False,
    base: Annotated[str | None, typer.Option(help="Another base image.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object only.")] = False,
) -> None:
    """Build the service's image, push it to REGISTRY, and pin its digest in the stack's file."""
    console = Console(stderr=True)
    try:
        stack_file = _stack_file(stack)
        builder = _builder()
        tag = _tag(registry)
        _pin(stack_file, tag, write=False)  # before minutes of work, not after
        console.print(f"Building {tag} with {builder}")
        _build(builder, tag, base)
        console.print("Pushing it")
        pinned = f"{tag.rpartition(':')[0]}@{_push(builder, tag, insecure=insecure)}"
        _pin(stack_file, pinned)
    except ImageError as error:
        console.print(f"error: {error}", style="red", markup=False)
        raise typer.Exit(1) from None
    if as_json:
        typer.echo(json.dumps({"image": pinned, "stack": stack}))
    else:
        console.print(f"Pinned {pinned} in {stack_file.relative_to(REPOSITORY)}", soft_wrap=True)


def _pin(stack_file: Path, pinned: str, *, write: bool = True) -> None:
    """Pin in the file, or only see whether that is possible."""
    try:
        # As bytes: line ends stay what they are.
        text = stack_file.read_bytes().decode()
        ends = "\r\n" if "\r\n" in text else "\n"
        changed = pin(text.replace("\r\n", "\n"), pinned).replace("\n", ends)
    except (PinError, UnicodeDecodeError) as error:
        where = stack_file.relative_to(REPOSITORY)
        raise ImageError(f"{where} cannot take the image: {error}") from None
    if write:
        stack_file.write_bytes(changed.encode())


def _tag(registry: str) -> str:
    if not registry:
        raise ImageError("no registry is given; run: make image REGISTRY=<host>/<folder>")
    return f"{registry.rstrip('/')}/{NAME}:{_version()}"


def _stack_file(stack: str) -> Path:
    path = REPOSITORY / "stacks" / f"Pulumi.{stack}.yaml"
    if not path.exists():
        known = ", ".join(sorted(p.name.split(".")[1] for p in path.parent.glob("Pulumi.*.yaml")))
        raise ImageError(f"there is no stack {stack!r}; there are: {known}")
    return path


def _builder() -> str:
    for name in _BUILDERS:
        if shutil.which(name) and (name != "docker" or _runs("docker", "info")):
            return name
    raise ImageError(f"none of {', '.join(_BUILDERS)} works here; install one of them")


def _version() -> str:
    """The commit, marked where the tree has changes that it does not hold."""
    described = ["git", "describe", "--always", "--dirty", "--exclude=*"]
    return _output(*described).replace("-dirty", "-changed")


def _build(builder: str, tag: str, base: str | None) -> None:
    arguments = ["--build-arg", f"BASE_IMAGE={base}"] if base else []
    _output(builder, "build", "--file", "service/Dockerfile", "--tag", tag, *arguments, ".")


def _push(builder: str, tag: str, *, insecure: bool) -> str:
    """Push, and return the digest that the registry knows the image by."""
    if builder == "docker":
        _output("docker", "push", tag)
        found = _output("docker", "inspect", "--format", "{{index .RepoDigests 0}}", tag)
        return found.rpartition("@")[2]
    verify = ["--tls-verify=false"] if insecure else []
    with tempfile.NamedTemporaryFile() as digest:
        _output(builder, "push", *verify, "--digestfile", digest.name, tag)
        return Path(digest.name).read_text().strip()


def _runs(*command: str) -> bool:
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def _output(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=REPOSITORY)
    if done.returncode != 0:
        last = "\n".join(done.stderr.strip().splitlines()[-5:])
        raise ImageError(f"`{' '.join(command[:2])}` failed:\n{last}")
    return done.stdout.strip()


if __name__ == "__main__":
    app()
