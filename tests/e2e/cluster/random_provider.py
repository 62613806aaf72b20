"""Stands in for `pulumi-resource-random`, which no package registry carries.

Serves `RandomPassword` and `RandomId` as the real one does, except for `bcryptHash`. A value is
made once, kept in the state, and made anew only when an input changes.
"""

import base64
import secrets
import string
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pulumi.provider.experimental.property_value import PropertyValue
from pulumi.provider.experimental.provider import (
    CheckFailure,
    CheckRequest,
    CheckResponse,
    CreateRequest,
    CreateResponse,
    DeleteRequest,
    DiffRequest,
    DiffResponse,
    PropertyDiff,
    PropertyDiffKind,
    Provider,
)
from pulumi.provider.experimental.server import main
from pulumi.runtime.rpc import UNKNOWN

VERSION = "4.21.4"
SPECIAL = "!@#$%&*()-_=+[]{}<>:?"

Inputs = dict[str, Any]


@dataclass(frozen=True)
class Kind:
    """A resource type: its inputs with their defaults, its rules, and how its value is made."""

    defaults: Mapping[str, Any]
    secret_outputs: Sequence[str]
    plain_outputs: Sequence[str]
    problems: Callable[[Inputs], list[CheckFailure]]
    make: Callable[[Inputs], tuple[str, dict[str, str]]]
    """From inputs to (id, outputs)."""


def _character_classes(inputs: Inputs) -> list[tuple[str, int]]:
    """Return the alphabets that are allowed, each with the number of characters it must give."""
    special = inputs["overrideSpecial"] or SPECIAL
    classes = [
        ("lower", string.ascii_lowercase, "minLower"),
        ("upper", string.ascii_uppercase, "minUpper"),
        ("numeric", string.digits, "minNumeric"),
        ("special", special, "minSpecial"),
    ]
    return [(letters, int(inputs[least])) for name, letters, least in classes if inputs[name]]


def _password_problems(inputs: Inputs) -> list[CheckFailure]:
    length = inputs["length"]
    if not isinstance(length, int | float) or length < 1:
        return [CheckFailure("length", f"must be a number of at least 1, not {length!r}")]
    classes = _character_classes(inputs)
    if not classes:
        return [CheckFailure("lower", "at least one of lower, upper, numeric, special is needed")]
    if sum(least for _, least in classes) > length:
        return [CheckFailure("length", "is less than the sum of the minimum counts")]
    return []


def _password(inputs: Inputs) -> tuple[str, dict[str, str]]:
    classes = _character_classes(inputs)
    characters = [secrets.choice(letters) for letters, least in classes for _ in range(least)]
    everything = "".join(letters for letters, _ in classes)
    characters += [
        secrets.choice(everything) for _ in range(int(inputs["length"]) - len(characters))
    ]
    secrets.SystemRandom().shuffle(characters)
    return "none", {"result": "".join(characters)}


def _identity_problems(inputs: Inputs) -> list[CheckFailure]:
    length = inputs["byteLength"]
    if not isinstance(length, int | float) or length < 1:
        return [CheckFailure("byteLength", f"must be a number of at least 1, not {length!r}")]
    return []


def _identity(inputs: Inputs) -> tuple[str, dict[str, str]]:
    value = secrets.token_bytes(int(inputs["byteLength"]))
    identity = base64.urlsafe_b64encode(value).decode().rstrip("=")
    forms = {
        "b64Url": identity,
        "b64Std": base64.b64encode(value).decode(),
        "hex": value.hex(),
        "dec": str(int.from_bytes(value, "big")),
    }
    prefix = inputs["prefix"] or ""
    return identity, {name: prefix + form for name, form in forms.items()}


KINDS = {
    "random:index/randomPassword:RandomPassword": Kind(
        defaults={
            "keepers": None,
            "length": None,
            "lower": True,
            "upper": True,
            "numeric": True,
            "special": True,
            "minLower": 0.0,
            "minUpper": 0.0,
            "minNumeric": 0.0,
            "minSpecial": 0.0,
            "overrideSpecial": None,
        },
        secret_outputs=["result"],
        plain_outputs=[],
        problems=_password_problems,
        make=_password,
    ),
    "random:index/randomId:RandomId": Kind(
        defaults={"byteLength": None, "keepers": None, "prefix": None},
        secret_outputs=[],
        plain_outputs=["b64Url", "b64Std", "hex", "dec"],
        problems=_identity_problems,
        make=_identity,
    ),
}


class Random(Provider):
    """The provider. A changed input always means a new resource, so there is no update."""

    async def check(self, request: CheckRequest) -> CheckResponse:
        """Fill in defaults, so that leaving one out and naming it are the same."""
        kind = _kind(request.type)
        given = {name: v for name, v in request.new_inputs.items() if v.value is not None}
        if request.type.endswith(":RandomPassword") and "number" in given:
            given.setdefault("numeric", given.pop("number"))  # the option's old name
        unknown = [name for name in given if name not in kind.defaults]
        if unknown:
            failures = [CheckFailure(name, "is not supported by this stand-in") for name in unknown]
            return CheckResponse(inputs=request.new_inputs, failures=failures)
        inputs = {name: PropertyValue(v) for name, v in kind.defaults.items() if v is not None}
        inputs.update(given)
        if any(_unknown(value) for value in inputs.values()):
            return CheckResponse(inputs=inputs)
        return CheckResponse(inputs=inputs, failures=kind.problems(_complete(kind, inputs)))

    async def diff(self, request: DiffRequest) -> DiffResponse:
        """Compare the inputs with those of the state; whatever differs replaces the resource."""
        kind = _kind(request.type)
        changed: dict[str, PropertyDiff] = {}
        for name in kind.defaults:
            old, new = request.old_state.get(name), request.new_inputs.get(name)
            if name not in request.ignore_changes and _plain(old) != _plain(new):
                changed[name] = PropertyDiff(_difference(old, new), input_diff=True)
        return DiffResponse(
            changes=bool(changed),
            replaces=list(changed),
            diffs=list(changed),
            detailed_diff=changed,
        )

    async def create(self, request: CreateRequest) -> CreateResponse:
        """Make the value; in a preview say that it is not known yet."""
        kind = _kind(request.type)
        if request.preview:
            names = [*kind.secret_outputs, *kind.plain_outputs]
            # The protocol's own word: the SDK cannot send its `Computed`.
            unknown = {name: PropertyValue(UNKNOWN) for name in names}
            return CreateResponse(properties={**request.properties, **unknown})
        identity, outputs = kind.make(_complete(kind, request.properties))
        values = {
            name: PropertyValue(value, is_secret=name in kind.secret_outputs)
            for name, value in outputs.items()
        }
        return CreateResponse(resource_id=identity, properties={**request.properties, **values})

    async def delete(self, request: DeleteRequest) -> None:
        """Do nothing: the value exists in the state only."""


def _kind(token: str) -> Kind:
    # A child's URN names its parents' types as well: `parent$type`.
    kind = KINDS.get(token.rpartition("$")[2])
    if kind is None:
        raise NotImplementedError(
            f"{token} is not among the stand-in's types: {', '.join(KINDS)}. Add it to"
            " tests/e2e/cluster/random_provider.py."
        )
    return kind


def _complete(kind: Kind, inputs: Mapping[str, PropertyValue]) -> Inputs:
    return {**kind.defaults, **{name: _plain(inputs[name]) for name in inputs}}


def _plain(value: PropertyValue | None) -> Any:
    """Return the bare value, without marks of secrecy and of dependencies."""
    if value is None:
        return None
    bare = value.value
    if isinstance(bare, Mapping):
        return {name: _plain(item) for name, item in bare.items()}
    if isinstance(bare, Sequence) and not isinstance(bare, str):
        return [_plain(item) for item in bare]
    return bare


def _unknown(value: PropertyValue) -> bool:
    if isinstance(value.value, Mapping):
        return any(_unknown(item) for item in value.value.values())
    return value.value == UNKNOWN


def _difference(old: PropertyValue | None, new: PropertyValue | None) -> PropertyDiffKind:
    if _plain(old) is None:
        return PropertyDiffKind.ADD_REPLACE
    if _plain(new) is None:
        return PropertyDiffKind.DELETE_REPLACE
    return PropertyDiffKind.UPDATE_REPLACE


if __name__ == "__main__":
    main(sys.argv[1:], VERSION, Random())
