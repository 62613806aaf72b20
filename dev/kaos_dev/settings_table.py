"""`docs/settings.md`: every setting of a store, from the settings model itself."""

import re
import sys
from typing import Any

from pydantic import SecretStr
from pydantic_core import PydanticUndefined

from kaos_memory.settings import VARIABLES, Variable

_HEAD = """# Settings of a memory store

Every field has the path by which a stack or a component names it and the variable by which the
service reads it. A field that is not given projects nothing: the service's default holds. Two rules
span several fields:

- `0 < compaction_target < compaction_trigger <= token_budget`, once marks of 0 are derived (the
  trigger from the token budget, the target from half of it);
- `auth.mode` must be given unless the service listens on loopback only.

This file is generated: `python -m kaos_dev.settings_table > docs/settings.md`.

| field | default | allowed | variable |
|---|---|---|---|
"""


def table() -> str:
    """The whole page."""
    return _HEAD + "".join(_row(variable) for variable in VARIABLES.values())


def _row(variable: Variable) -> str:
    shown = (f"`{variable.dotted}`", _default(variable), _allowed(variable), f"`{variable.name}`")
    return f"| {' | '.join(shown)} |\n"


def _default(variable: Variable) -> str:
    default = variable.field.default
    if default is PydanticUndefined:
        return "required"
    if default is None:
        return "unset"
    value = default.get_secret_value() if isinstance(default, SecretStr) else default
    return (
        f"`{str(value).lower() if isinstance(value, bool) else value}`" if value != "" else "empty"
    )


def _allowed(variable: Variable) -> str:
    if variable.secret:
        return "a secret"
    annotation: Any = variable.field.annotation
    options = [str(option) for option in _options(annotation)]
    if options:
        return ", ".join(f"`{option}`" for option in options)
    bounds = _bounds(variable)
    kind = next(
        (k for k in ("bool", "int", "float") if re.search(rf"\b{k}\b", str(annotation))), ""
    )
    names = {"bool": "`true`, `false`", "int": "whole number", "float": "number", "": "text"}
    return " ".join(part for part in (names[kind], bounds) if part)


def _options(annotation: Any) -> list[object]:
    if hasattr(annotation, "__members__"):
        return list(annotation)
    found: list[object] = []
    for inner in getattr(annotation, "__args__", ()):
        found += [inner] if isinstance(inner, str) else _options(inner)
    return found


def _bounds(variable: Variable) -> str:
    marks: dict[str, Any] = {}
    pending: list[Any] = [variable.field.annotation, *variable.field.metadata]
    while pending:
        mark = pending.pop()
        pending += [*getattr(mark, "__args__", ()), *getattr(mark, "__metadata__", ())]
        pending += getattr(mark, "metadata", [])
        for name in ("ge", "le", "max_length", "pattern"):
            if getattr(mark, name, None) is not None:
                marks[name] = getattr(mark, name)
    if "ge" in marks:
        return f"{marks['ge']}-{marks['le']}"
    if "pattern" in marks:
        escaped = str(marks["pattern"]).replace("|", "\\|")
        return f"like `{escaped}`"
    return f"of at most {marks['max_length']:,} characters" if "max_length" in marks else ""


if __name__ == "__main__":
    sys.stdout.write(table())
