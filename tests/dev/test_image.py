"""Pinning an image in a stack's file."""

import pytest

from kaos_dev.image import pin

PINNED = "registry.local/kaos-memorystore@sha256:abc"


@pytest.mark.parametrize(
    "before",
    [
        "# why\nconfig:\n  kaos:image: old:1\n  kaos:stores: []  # mine\n",
        "# why\nconfig:\n  # kaos:image: registry/name@sha256:...\n  kaos:stores: []  # mine\n",
        "# why\nconfig:\n  kaos:stores: []  # mine\n",
    ],
)
def test_the_image_is_pinned_and_all_else_stays(before: str):
    assert pin(before, PINNED) == (
        f"# why\nconfig:\n  kaos:image: {PINNED}\n  kaos:stores: []  # mine\n"
    )


def test_pinning_again_changes_nothing():
    once = pin("config:\n  kaos:stores: []\n", PINNED)
    assert pin(once, PINNED) == once
