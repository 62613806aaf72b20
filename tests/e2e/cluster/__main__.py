"""`python -m tests.e2e.cluster`: the cluster's command line."""

import sys
import time
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from tests.e2e.cluster import images as image_recipes
from tests.e2e.cluster import lifecycle, tools
from tests.e2e.cluster.errors import ClusterError
from tests.e2e.cluster.paths import existing_kubeconfig

app = typer.Typer(no_args_is_help=True, add_completion=False, help=__doc__)
console = Console(stderr=True, highlight=False, soft_wrap=True)


@app.command("tools")
def build_tools() -> None:
    """Build what no package registry carries: Kubernetes, Pulumi and their companions."""
    table = Table("tool", "binaries", "MB", "built in")
    for tool in tools.TOOLS:
        with console.status(tool.name) as status:
            seconds = tools.build(
                tool, lambda elapsed, t=tool: status.update(f"building {t.name}: {elapsed:.0f} s")
            )
        size = sum(path.stat().st_size for path in tool.folder.iterdir()) / 1e6
        names = ", ".join(tool.binaries)
        table.add_row(tool.name, names, f"{size:.0f}", f"{seconds:.0f} s" if seconds else "cached")
    console.print(table)


@app.command()
def up(
    fresh: Annotated[bool, typer.Option(help="Start anew even if the cluster is healthy.")] = False,
) -> None:
    """Start the cluster unless it is healthy; print the path of its kubeconfig."""
    started = time.monotonic()
    kubeconfig = lifecycle.up(fresh=fresh, report=_report)
    _report(f"Cluster ready after {time.monotonic() - started:.1f} s")
    typer.echo(kubeconfig)


@app.command()
def down() -> None:
    """Stop the cluster and remove everything of it. Built tools and images stay."""
    lifecycle.down(report=_report)


@app.command()
def images() -> None:
    """Build the images of the tests that are not current, and load them into the cluster."""
    table = Table("image", "MB", "ready after")
    for image in image_recipes.ALL_IMAGES:
        started = time.monotonic()
        with console.status(image.tag):
            archive = image_recipes.ensure(image)
        took = time.monotonic() - started
        table.add_row(image.tag, f"{archive.stat().st_size / 1e6:.0f}", f"{took:.1f} s")
    console.print(table)
    if not existing_kubeconfig() and not lifecycle.healthy():
        _report("The cluster is not up: the images are built, `up` and `images` will load them")


def _report(message: str) -> None:
    console.print(message)


def main() -> None:
    """Run the command line; show the package's own errors without a traceback."""
    try:
        app()
    except ClusterError as error:
        console.print(str(error), style="red", markup=False)
        sys.exit(1)


if __name__ == "__main__":
    main()
