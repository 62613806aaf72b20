"""The service's settings that a store's arguments stand for, and everything wrong with them."""

import re
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from pulumi_kaos import _rules as rules
from pulumi_kaos._arguments import known
from pulumi_kaos._environment import MAX_ENVIRONMENT_BYTES, fits_environment, variable_name
from pulumi_kaos._settings import (
    ENV_PREFIX,
    VARIABLES,
    Models,
    ServiceSettings,
    SettingsError,
    describe,
    from_environment,
    to_environment,
)

ROLES = tuple(Models.model_fields)
_OPTIONAL_ROLES = frozenset({"rerank"})
_ALL_ADDRESSES = "0.0.0.0"  # noqa: S104 - a pod is reached at its own address
# Stand-ins for what is not known yet or never read here. They satisfy every rule, so that the
# rest is checked as if they were the real values.
_PLACEHOLDERS: dict[tuple[str, ...], str] = {
    ("storage", "external", "dsn"): "postgresql://placeholder",
    ("auth", "mode"): "disabled",
    **{("models", role, "base_url"): "http://placeholder.invalid/v1" for role in ROLES},
    **{("models", role, "model"): "placeholder" for role in ROLES},
}
# The pod, its grace period and the check for shared schemas are built from these.
_SHAPING = frozenset(
    variable_name(*path)
    for path in (
        ("storage", "type"),
        ("storage", "external", "collection"),
        ("server", "host"),
        ("server", "port"),
        ("server", "drain_seconds"),
        ("telemetry", "metrics_port"),
    )
)
_STORE_NAME = variable_name("store", "name")
_SECRET = "placeholder"  # noqa: S105 - stands for a secret


def nested(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that the arguments stand for, with stand-ins where needed."""
    storage: Mapping[str, Any] = given.get("storage", {})
    external = {**storage.get("external", {}), "dsn": _PLACEHOLDERS["storage", "external", "dsn"]}
    external.pop("connection_secret_ref", None)
    settings = {name: given[name] for name in ServiceSettings.model_fields if name in given}
    settings["storage"] = {"type": "external", "external": external}
    models: Mapping[str, Any] = given.get("models", {})
    settings["models"] = {role: _model(role, models) for role in roles(models)}
    settings["server"] = {"host": _ALL_ADDRESSES, **given.get("server", {})}
    settings["auth"] = given.get("auth") or {"mode": _PLACEHOLDERS["auth", "mode"]}
    # A name that breaks its own rules is reported by those.
    settings["store"] = {"name": f"{known(given.get('namespace')) or 'x'}/{given['name']}"[:200]}
    return settings


def roles(models: Mapping[str, Any]) -> list[str]:
    """Return the models' roles: those that every store has, and those that are given."""
    return [role for role in ROLES if role not in _OPTIONAL_ROLES or role in models]


def _model(role: str, models: Mapping[str, Any]) -> dict[str, Any]:
    model: Mapping[str, Any] = models.get(role, {})
    api: Mapping[str, Any] = model.get("model_api", {})
    key = {"api_key": _SECRET} if "secret_name" in api else {}
    url = known(api.get("endpoint"))
    # What `rules.endpoint` refuses, in words that show no password, is not told again.
    sound = url if url and rules.endpoint("", url) is None else None
    return {
        "base_url": sound or _PLACEHOLDERS["models", role, "base_url"],
        "model": model.get("model", _PLACEHOLDERS["models", role, "model"]),
        **key,
    }


def settings_problems(given: Mapping[str, Any]) -> list[str]:
    """Return every problem of the settings, of the arguments' own and after `container.env`."""
    settings, problems = _validated(nested(given))
    if settings is not None:
        projected = to_environment(settings)
        problems = rules.found(
            fits_environment(name, name, text) for name, text in projected.items()
        )
        problems += _size_problems(given, projected)
    unreadable = _override_problems(given)
    problems += unreadable or _merge_problems(given, settings)
    return [re.sub(r"^(models\.\w+)\.base_url\b", r"\1.model_api.endpoint", p) for p in problems]


def _merge_problems(given: Mapping[str, Any], settings: ServiceSettings | None) -> list[str]:
    """Return what `container.env` does wrong; on top of defaults where the arguments are wrong."""
    base = settings or ServiceSettings.model_validate(nested({"name": "x"}))
    try:
        merged(given, base)
    except SettingsError as error:
        # Rules over several fields say nothing where half of the fields are stand-ins.
        own = [p for p in error.problems if settings is not None or ENV_PREFIX in p]
        return [f"container.env: {problem}" for problem in own]
    return []


def _validated(values: dict[str, Any]) -> tuple[ServiceSettings | None, list[str]]:
    """Validate in two passes: rules over several fields are only looked at where each is sound."""
    try:
        return ServiceSettings.model_validate(values), []
    except ValidationError as error:
        problems = describe(error, values)
        sound = values
        for finding in error.errors():
            sound = _without(sound, tuple(str(part) for part in finding["loc"]))
    try:
        ServiceSettings.model_validate(sound)
    except ValidationError as error:
        problems += [problem for problem in describe(error, sound) if problem not in problems]
    return None, problems


def _without(values: dict[str, Any], path: tuple[str, ...]) -> dict[str, Any]:
    """Return the settings without the field, or with its stand-in where it is required."""

    def copy(group: dict[str, Any], depth: int) -> dict[str, Any]:
        name = path[depth]
        if name not in group:
            return group
        if depth + 1 < len(path) and isinstance(group[name], dict):
            return {**group, name: copy(group[name], depth + 1)}
        others = {other: value for other, value in group.items() if other != name}
        return {**others, name: _PLACEHOLDERS[path]} if path in _PLACEHOLDERS else others

    return copy(values, 0) if path else values


def _override_problems(given: Mapping[str, Any]) -> list[str]:
    problems: list[str] = []
    seen: set[str] = set()
    for index, entry in enumerate(given.get("container", {}).get("env", [])):
        path, name = f"container.env.{index}", entry.get("name", "")
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            problems.append(f"{path}.name is {name!r}: must be letters, digits and '_'; correct it")
        if name in seen:
            problems.append(f"{path}.name is {name}, which an earlier entry sets; remove one")
        seen.add(name)
        if ("value" in entry) == ("value_from" in entry):
            problems.append(f"{path} ({name}) needs either value or value_from; give one")
        if name == _STORE_NAME:
            problems.append(
                f"{path} ({name}) guards the schema against other stores: it is made of namespace "
                "and name; remove it"
            )
            continue
        if name in _SHAPING and "value_from" in entry:
            problems.append(
                f"{path} ({name}) decides what is created: must be a plain value, not value_from; "
                "give it by value"
            )
        reference = entry.get("value_from", {}).get("secret_key_ref", {})
        problems += rules.secret_reference(f"{path}.value_from.secret_key_ref", reference)
        problems += _value_problems(path, name, entry.get("value"))
    return problems


def _value_problems(path: str, name: str, value: object) -> list[str]:
    if value is None:
        return []
    if name in VARIABLES and VARIABLES[name].secret:
        return [f"{path} ({name}) holds a secret; give it by value_from.secret_key_ref"]
    if not isinstance(value, str):
        if name.startswith(ENV_PREFIX):
            return [f"{path} ({name}) must be a plain value, not an output; see `value`"]
        return []
    problems = [fits_environment(f"{path} ({name})", name, value)]
    if name in VARIABLES and VARIABLES[name].path[-1] == "base_url":
        problems.append(rules.endpoint(f"{path} ({name})", value))
    return rules.found(problems)


def _size_problems(given: Mapping[str, Any], projected: Mapping[str, str]) -> list[str]:
    """Check the plain variables together; each on its own has been checked before."""
    entries: list[Mapping[str, Any]] = given.get("container", {}).get("env", [])
    own = {entry.get("name", ""): known(entry.get("value")) or "" for entry in entries}
    variables = {**projected, **own}
    size = sum(len(f"{name}={text}\0".encode(errors="replace")) for name, text in variables.items())
    if size <= MAX_ENVIRONMENT_BYTES:
        return []
    problem = (
        f"container.env and the settings take {size} bytes together: must be "
        f"{MAX_ENVIRONMENT_BYTES} at most; shorten them"
    )
    return [problem]


def merged(given: Mapping[str, Any], settings: ServiceSettings) -> ServiceSettings:
    """Return what the service will read once `container.env` came last.

    Raises:
        SettingsError: an unknown variable, or a value that breaks rules.
    """
    environment = to_environment(settings)
    for entry in given.get("container", {}).get("env", []):
        name, text = entry["name"], known(entry.get("value"))
        if text is not None:
            environment[name] = text
        elif name not in VARIABLES:
            environment[name] = _SECRET
        # Else it comes from a Secret: what stands there already is as good a stand-in.
    result = from_environment(environment)
    if result.server.host not in (_ALL_ADDRESSES, "::"):
        problem = (
            f"{variable_name('server', 'host')} is {result.server.host!r}: the Service could not "
            f"reach the pod; remove it ({_ALL_ADDRESSES} is set already)"
        )
        raise SettingsError([problem])
    return result
