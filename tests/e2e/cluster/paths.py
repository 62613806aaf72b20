"""Where the cluster's parts live: caches in the user's cache folder, running state in one place.

Nothing is written into the checkout: binaries take twenty minutes to build and images minutes,
and both must outlive a clean clone.
"""

import os
from pathlib import Path

from kaos_dev.cache import cache_root

PACKAGE = Path(__file__).resolve().parent
REPOSITORY = PACKAGE.parents[2]
IMAGES = REPOSITORY / "tests" / "e2e" / "images"

STATE = Path("/var/lib/kaos-cluster")
"""State of the running cluster. Not below the cache: bridges, chains and ports exist once per
machine, so the record of them must, too, whatever `KAOS_CACHE_DIR` says; and a socket's path may
have 107 characters at most."""


def tool_cache() -> Path:
    """Return the folder of built binaries, one sub-folder per tool and hash."""
    return cache_root() / "cluster-tools"


def image_cache() -> Path:
    """Return the folder of built images and of the downloads that builds share."""
    return cache_root() / "cluster-images"


def existing_kubeconfig() -> Path | None:
    """Return the kubeconfig of a cluster that the user has and that is to be used instead of ours.

    It is named by `KAOS_E2E_KUBECONFIG`; then no cluster is started, stopped or changed here.
    """
    named = os.environ.get("KAOS_E2E_KUBECONFIG")
    return Path(named).absolute() if named else None
