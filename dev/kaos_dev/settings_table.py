"""`docs/settings.md`: every setting of a store, from the settings model itself."""

import re
import sys
from typing import Any

from pydantic import SecretStr
from pydantic_core import PydanticUndefined

from kaos_memory.settings import VARIABLES, Models, Variable

_HEAD = """# Settings of a memory store

Every field has the variable by which the service reads it. A stack's file and a component name it
by the same path, except where the column *in a stack or component* says otherwise: those fields
follow from other arguments. A field that is not given projects nothing: the service's default
holds. The last word has `container.env`, which sets variables.

Two rules span several fields:

- `0 < compaction_target < compaction_trigger <= token_budget`, once marks of 0 are derived (the
  trigger from the token budget, the target from half of it);
- `auth.mode` must be given unless the service listens on loopback only; a component
  always needs it.

This file is generated: `python -m kaos_dev.settings_table > docs/settings.md`.

| field | default | allowed | in a stack or component | variable |
|---|---|---|---|---|
"""

_ROLES = tuple(Models.model_fields)
FILLED_IN = {
    "storage.external.dsn": "`storage.external.connection_secret_ref`; in a stack, `database`",
    **{f"models.{role}.base_url": f"the endpoint of `models.{role}.model_api`" for role in _ROLES},
    **{f"models.{role}.api_key": f"the Secret of `models.{role}.model_api`" for role in _ROLES},
    "server.host": "all addresses of the pod",
    "server.port": "the default",
    "store.name": "`<namespace>/<name>`",
}
"""Fields that are no arguments of a component, and what they follow from there."""
NOT_AVAILABLE = "not available in this version"
"""What the service can and a component cannot yet."""


def table() -> str:
    """The whole page."""
    return _HEAD + "".join(_row(variable) for variable in VARIABLES.values())


def _row(variable: Variable) -> str:
    shown = (
        f"`{variable.dotted}`",
        _default(variable),
        _allowed(variable),
        _given_by(variable),
        f"`{variable.name}`",
    )
    return f"| {' | '.join(shown)} |\n"


def _given_by(variable: Variable) -> str:
    if variable.dotted.startswith("storage.local."):
        return NOT_AVAILABLE
    if variable.dotted == "storage.type":
        return f"required; `local` is {NOT_AVAILABLE}"
    return FILLED_IN.get(variable.dotted, "")


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
    bounds: list[str] = []
    if "pattern" in marks:
        escaped = str(marks["pattern"]).replace("|", "\\|")
        bounds.append(f"like `{escaped}`")
    if "max_length" in marks:
        bounds.append(f"of at most {marks['max_length']:,} characters")
    return ", ".join(bounds)


if __name__ == "__main__":
    sys.stdout.write(table())
