"""Settings from and to environment variables, and every broken rule as a sentence."""

import difflib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import SecretStr, ValidationError
from pydantic.fields import FieldInfo

from .fields import Env, ServiceSettings, Settings

ENV_PREFIX = "KAOS_MEMORY_"


class SettingsError(ValueError):
    """Settings that break rules. `problems` holds one sentence for each, without secrets."""

    def __init__(self, problems: list[str]) -> None:
        self.problems = problems
        super().__init__("\n".join(problems))


@dataclass(frozen=True)
class Variable:
    """An environment variable and the field that it sets."""

    name: str
    path: tuple[str, ...]
    field: FieldInfo
    secret: bool

    @property
    def dotted(self) -> str:
        """The field's path as messages show it."""
        return ".".join(self.path)


def _group_of(annotation: Any) -> type[Settings] | None:
    candidates = getattr(annotation, "__args__", (annotation,))
    for candidate in candidates:
        if isinstance(candidate, type) and issubclass(candidate, Settings):
            return candidate
    return None


def _walk(group: type[Settings], path: tuple[str, ...]) -> Iterator[Variable]:
    for name, field in group.model_fields.items():
        here = (*path, name)
        inner = _group_of(field.annotation)
        if inner is not None:
            yield from _walk(inner, here)
            continue
        env = next((mark.name for mark in field.metadata if isinstance(mark, Env)), None)
        yield Variable(
            name=ENV_PREFIX + (env or "_".join(here).upper()),
            path=here,
            field=field,
            secret=field.annotation is SecretStr,
        )


VARIABLES: dict[str, Variable] = {
    variable.name: variable for variable in _walk(ServiceSettings, ())
}
"""Every variable that the service knows, by name."""

_SERVICE_LINK = re.compile(
    rf"{ENV_PREFIX}(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT_\d+_(TCP|UDP|SCTP)(_\w+)?)"
)


def _is_service_link(name: str, value: str) -> bool:
    """Whether Kubernetes set this variable because of a Service called `kaos-memory…`."""
    return bool(_SERVICE_LINK.fullmatch(name)) or (
        name.endswith("_PORT") and re.match(r"(tcp|udp|sctp)://", value) is not None
    )


def from_environment(environ: Mapping[str, str]) -> ServiceSettings:
    """Read the settings from variables `KAOS_MEMORY_*`; all others are ignored.

    Raises:
        SettingsError: an unknown variable, or values that break rules; all of them are named.
    """
    nested: dict[str, Any] = {}
    problems: list[str] = []
    for name in sorted(environ):
        if not name.startswith(ENV_PREFIX):
            continue
        variable = VARIABLES.get(name)
        if _is_service_link(name, environ[name]):
            continue
        if variable is not None:
            group = nested
            for part in variable.path[:-1]:
                group = group.setdefault(part, {})
            group[variable.path[-1]] = environ[name]
        else:
            close = difflib.get_close_matches(name, VARIABLES, n=1)
            hint = f"did you mean {close[0]}?" if close else "remove it"
            problems.append(f"{name} is not a setting of this service; {hint}")
    try:
        settings = validate(nested)
    except SettingsError as error:
        raise SettingsError(problems + error.problems) from None
    if problems:
        raise SettingsError(problems)
    return settings


def to_environment(settings: Settings) -> dict[str, str]:
    """Project the fields that were given onto their variables; others project nothing."""
    projected: dict[str, str] = {}
    for variable in VARIABLES.values():
        value: Any = settings
        for part in variable.path:
            if not isinstance(value, Settings) or part not in value.model_fields_set:
                value = None
                break
            value = getattr(value, part)
        if value is not None:
            projected[variable.name] = _text(value)
    return projected


def _text(value: object) -> str:
    if isinstance(value, SecretStr):
        return value.get_secret_value()
    return str(value).lower() if isinstance(value, bool) else str(value)


def validate(nested: Mapping[str, Any]) -> ServiceSettings:
    """Build settings from nested values.

    Raises:
        SettingsError: with every broken rule as field, value, rule and remedy.
    """
    try:
        return ServiceSettings.model_validate(nested)
    except ValidationError as error:
        raise SettingsError(describe(error, nested)) from None


def describe(error: ValidationError, given: Mapping[str, Any]) -> list[str]:
    """Turn pydantic's findings into sentences: field, value, rule, remedy. Secrets stay out."""
    variables = {variable.path: variable for variable in VARIABLES.values()}
    return [_sentence(finding, given, variables) for finding in error.errors()]


def _sentence(
    finding: Any, given: Mapping[str, Any], variables: Mapping[tuple[str, ...], Variable]
) -> str:
    path = tuple(str(part) for part in finding["loc"])
    rule = finding["msg"].removeprefix("Value error, ")
    if not path:
        return rule
    dotted, variable = ".".join(path), variables.get(path)
    if finding["type"] == "missing":
        inside = [v.name for p, v in variables.items() if p[: len(path)] == path]
        return f"{dotted} is required but not given; set it ({', '.join(inside)})"
    if finding["type"] == "extra_forbidden":
        siblings = [p[len(path) - 1] for p in variables if p[: len(path) - 1] == path[:-1]]
        close = difflib.get_close_matches(path[-1], siblings, n=1)
        hint = f"did you mean {close[0]}?" if close else f"known here: {', '.join(siblings)}"
        return f"{dotted} is not a setting; {hint}"
    if variable is None:
        return f"{dotted}: {rule}"
    value: Any = given
    for part in path:
        value = value.get(part) if isinstance(value, Mapping) else None
    shown = "a secret" if variable.secret else _clipped(repr(value))
    return f"{dotted} is {shown}: {rule}; {_remedy(variable)}"


def _clipped(text: str) -> str:
    """A value as messages show it: short, and without a user and password that it may hold."""
    text = re.sub(r"//[^/@\s]*@", "//...@", text)
    return text if len(text) <= 80 else text[:77] + "..."


def _remedy(variable: Variable) -> str:
    if variable.field.is_required():
        return f"correct it ({variable.name})"
    default = variable.field.default
    if isinstance(default, SecretStr) or default is None or default == "":
        return f"correct it or leave it out ({variable.name})"
    return f"correct it or leave it out for the default {_text(default)} ({variable.name})"
