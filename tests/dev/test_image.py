"""Pinning an image in a stack's file."""

import pytest
import yaml

from kaos_dev.conversations import REPOSITORY
from kaos_dev.image_pin import PinError, pin

PINNED = "registry.local:5000/kaos-memorystore@sha256:abc"


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


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", "config:\n  kaos:image: X\n"),
        ("# mine\n", "# mine\nconfig:\n  kaos:image: X\n"),
        ("encryptionsalt: v1:abc", "encryptionsalt: v1:abc\nconfig:\n  kaos:image: X\n"),
        ("config:\nencryptionsalt: v1\n", "config:\n  kaos:image: X\nencryptionsalt: v1\n"),
        ("config: # none\n", "config:\n  kaos:image: X # none\n"),
        ("config: {a: b} # mine\n", "config: {kaos:image: X, a: b} # mine\n"),
        ("config: {}\n", "config: {kaos:image: X}\n"),
        ("config: {kaos:image: old, a: b}\n", "config: {kaos:image: X, a: b}\n"),
        ("config:\n    a: b\n", "config:\n    kaos:image: X\n    a: b\n"),
        ("config:\n    kaos:image: old # v1\n", "config:\n    kaos:image: X # v1\n"),
        ("config:\n    # kaos:image: old\n    a: b\n", "config:\n    kaos:image: X\n    a: b\n"),
        ("config:\n  'kaos:image': old\n", "config:\n  'kaos:image': X\n"),
        ('config:\n  "kaos:image": "old"\n', 'config:\n  "kaos:image": X\n'),
        ("config:\n  kaos:image:\n  a: b\n", "config:\n  kaos:image: X\n  a: b\n"),
        (
            "config:\n  # why a\n  a: b\nother:\n  # kaos:image: no\n  c: d\n",
            "config:\n  kaos:image: X\n  # why a\n  a: b\nother:\n  # kaos:image: no\n  c: d\n",
        ),
        ("'config':\n  a: b\n", "'config':\n  kaos:image: X\n  a: b\n"),
    ],
)
def test_a_files_own_way_of_writing_is_kept(before: str, after: str):
    assert pin(before, PINNED) == after.replace("X", PINNED)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("- a\n", "it holds no mapping"),
        ("config: text\n", "its `config` is no mapping"),
        ("config: [a]\n", "its `config` is no mapping"),
        ("config:\n\ta: b\n", "it is not YAML that can be edited here"),
        ("{config: {a: b}, c: d", "it is not YAML that can be edited here"),
        ("{c: d}\n", "it is not YAML that can be edited here"),
        ("a: 1\n---\nb: 2\n", "it is not YAML that can be edited here"),
        ("config:\n  kaos:image: &old x:1\n  a: *old\n", "it is not YAML that can be edited"),
        ("config: {a: 1}\nconfig: {b: 2}\n", "its way of writing cannot be kept"),
        ("config:\n  kaos:image: a\n  kaos:image: b\n", "its way of writing cannot be kept"),
    ],
)
def test_what_cannot_be_edited_safely_is_refused(text: str, problem: str):
    with pytest.raises(PinError, match=problem):
        pin(text, PINNED)


@pytest.mark.parametrize("stack", ["dev", "demo"])
def test_pinning_a_committed_stack_changes_its_image_only(stack: str):
    text = (REPOSITORY / "stacks" / f"Pulumi.{stack}.yaml").read_text()
    pinned = pin(text, PINNED)
    expected = yaml.safe_load(text)
    expected["config"]["kaos:image"] = PINNED
    assert yaml.safe_load(pinned) == expected
    assert set(text.splitlines()) - set(pinned.splitlines()) <= {
        "  kaos:image: kaos-memorystore:demo"
    }


@pytest.mark.parametrize("image", [PINNED, "[::1]:5000/kaos@sha256:abc", "1.5"])
def test_pinning_again_changes_nothing(image: str):
    once = pin("config:\n  kaos:stores: []\n", image)
    assert yaml.safe_load(once)["config"]["kaos:image"] == image
    assert pin(once, image) == once
