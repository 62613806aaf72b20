"""Pins an image in a stack's file and leaves all else in it, comments too, as it is.

The text is edited where YAML's own parser says that a value lies. The result is parsed again: it
must say the same as before but for the image.
"""

import json
from typing import Any, cast

import yaml

KEY = "kaos:image"


class PinError(Exception):
    """A file in which the image cannot be pinned without changing something else."""


def pin(text: str, pinned: str) -> str:
    """The stack's file with this image.

    Raises:
        PinError: the file is not a stack's, or is written in a way that only a person can edit.
    """
    try:
        before: Any = yaml.safe_load(text)
        edited = _edited(text, yaml.compose(text, yaml.SafeLoader), _scalar(pinned))
        after: Any = yaml.safe_load(edited)
        document = yaml.compose(edited, yaml.SafeLoader)
    except yaml.YAMLError as error:
        raise PinError(f"it is not YAML that can be edited here: {_in_one_line(error)}") from None
    expected = {**(before or {})}
    expected["config"] = {**(expected.get("config") or {}), KEY: pinned}
    if after != expected or len(_entries(document, "config")) != 1:
        raise PinError(f"its way of writing cannot be kept; write `{KEY}: {pinned}` yourself")
    return edited


def _edited(text: str, document: yaml.Node | None, pinned: str) -> str:
    entry = f"{KEY}: {pinned}"
    if document is None:
        return f"{_ended(text)}config:\n  {entry}\n"
    if not isinstance(document, yaml.MappingNode):
        raise PinError("it holds no mapping")
    configs = _entries(document, "config")
    if not configs:
        return f"{_ended(text)}config:\n  {entry}\n"
    key, config = configs[0]
    if isinstance(config, yaml.ScalarNode) and config.value == "":
        return _inserted(text, key.end_mark.index + 1, f"\n  {entry}")
    if not isinstance(config, yaml.MappingNode):
        raise PinError("its `config` is no mapping")
    images = _entries(config, KEY)
    if images:
        old: yaml.Node = images[0][1]
        start, end = old.start_mark.index, old.end_mark.index
        return text[:start] + (" " if start == end else "") + pinned + text[end:]
    if config.flow_style:
        separator = ", " if config.value else ""
        return _inserted(text, config.start_mark.index + 1, f"{entry}{separator}")
    first: yaml.Node = config.value[0][0]
    return _added(text, key.end_mark.line + 1, first.start_mark, entry)


def _added(text: str, line: int, first: yaml.Mark, entry: str) -> str:
    """In place of a comment that shows the key, else before all others; as far in as they are."""
    lines = text.splitlines(keepends=True)
    new = f"{' ' * first.column}{entry}\n"
    for number in range(line, len(lines)):
        shown = lines[number].strip()
        if shown.startswith("#") and shown.lstrip("# ").startswith(f"{KEY}:"):
            lines[number] = new
            break
        if shown and not lines[number].startswith((" ", "#")):
            lines.insert(line, new)  # `config` ends here
            break
    else:
        lines.insert(line, new)
    return "".join(lines)


def _entries(node: yaml.Node | None, key: str) -> list[tuple[yaml.Node, yaml.Node]]:
    """The entries with that key, however it is quoted; more than one would hide each other."""
    if not isinstance(node, yaml.MappingNode):
        return []
    pairs = cast("list[tuple[yaml.Node, yaml.Node]]", node.value)
    return [(found, value) for found, value in pairs if found.value == key]


def _inserted(text: str, index: int, more: str) -> str:
    return text[:index] + more + text[index:]


def _ended(text: str) -> str:
    return text if not text or text.endswith("\n") else f"{text}\n"


def _scalar(pinned: str) -> str:
    """The image as YAML, quoted where it would read as something else."""
    try:
        return pinned if yaml.safe_load(pinned) == pinned else json.dumps(pinned)
    except yaml.YAMLError:
        return json.dumps(pinned)


def _in_one_line(error: Exception) -> str:
    return " ".join(str(error).split())
