"""ModelAPI: an OpenAI-compatible endpoint that stores of its namespace use, and its key."""

from collections.abc import Mapping
from typing import Any, NotRequired, TypedDict, cast

import pulumi
import pulumi_kubernetes as k8s
from pydantic import TypeAdapter, ValidationError

from pulumi_kaos import _pods as pods
from pulumi_kaos import _rules as rules
from pulumi_kaos._arguments import ArgumentsError, checked_later, known, read, without_echoes
from pulumi_kaos._references import ModelApiReference, SecretReference
from pulumi_kaos._settings import Url

_KIND = "ModelAPI"
_KEY_ENTRY = "api-key"
_SECRET_SUFFIX = "-model-key"  # noqa: S105 - part of a name


class ExternalModelApiArgs(TypedDict):
    """An endpoint that runs elsewhere. Give `api_key`, `secret_ref` or neither."""

    endpoint: pulumi.Input[str]
    """OpenAI-compatible base URL with its `/v1`, such as `https://api.openai.com/v1`. Taken as it
    is: some providers' base URLs end otherwise."""
    api_key: NotRequired[pulumi.Input[str]]
    """The endpoint's key. It goes into a Secret of its own; a new key makes a new Secret with a
    new name, which restarts the pods that use it."""
    secret_ref: NotRequired[SecretReference]
    """A Secret of yours that holds the key, in the same namespace. It is never read here."""


class ModelApiArgs(TypedDict):
    """Arguments of `ModelAPI`."""

    namespace: pulumi.Input[str]
    """Namespace of the stores that use the endpoint."""
    mode: str
    """Who serves the models: `external`, the only mode of this version."""
    external: NotRequired[ExternalModelApiArgs]
    """Required with mode external."""


class ModelAPI(pulumi.ComponentResource):
    """A model endpoint. In mode external it creates at most the Secret with the endpoint's key."""

    endpoint: pulumi.Output[str]
    """Base URL with its `/v1`."""
    secret_name: pulumi.Output[str] | None
    """Name of the Secret with the key; absent where the endpoint needs none."""
    secret_key: pulumi.Output[str] | None
    """Name of the entry in that Secret."""

    def __init__(
        self, name: str, args: ModelApiArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        """Create the endpoint's Secret where a key is given.

        Raises:
            ArgumentsError: arguments break rules; nothing was created.
        """
        given = _checked(name, cast("Mapping[str, Any]", args))
        super().__init__("kaos:index:ModelAPI", name, None, opts)
        external: Mapping[str, Any] = given["external"]
        secret: Mapping[str, Any] | None = external.get("secret_ref")
        if "api_key" in external:
            created = k8s.core.v1.Secret(
                f"{name}{_SECRET_SUFFIX}",
                metadata=pods.metadata(given["namespace"], pods.labels("modelapi", name)),
                string_data={_KEY_ENTRY: pulumi.Output.secret(external["api_key"])},
                # Another key is another Secret, so that pods never run with the old one.
                immutable=True,
                opts=pulumi.ResourceOptions(parent=self),
            )
            secret = {"name": created.metadata.apply(lambda it: it.name or ""), "key": _KEY_ENTRY}
        self._reference = ModelApiReference(endpoint=external["endpoint"])
        self.endpoint = pulumi.Output.from_input(external["endpoint"])
        self.secret_name = None
        self.secret_key = None
        outputs: dict[str, pulumi.Output[str]] = {"endpoint": self.endpoint}
        if secret is not None:
            self._reference["secret_name"] = secret["name"]
            self._reference["secret_key"] = secret["key"]
            self.secret_name = pulumi.Output.from_input(secret["name"])
            self.secret_key = pulumi.Output.from_input(secret["key"])
            outputs |= {"secretName": self.secret_name, "secretKey": self.secret_key}
        self.register_outputs(outputs)

    @property
    def reference(self) -> ModelApiReference:
        """What a store's `model_api` takes. A plain endpoint stays plain, for early checks."""
        return self._reference


def model_api_problems(name: str, args: Mapping[str, Any]) -> list[str]:
    """Return what is wrong with the arguments, outputs apart; creates nothing."""
    try:
        _checked(name, args)
    except ArgumentsError as error:
        return error.problems
    return []


def _checked(name: str, args: Mapping[str, Any]) -> dict[str, Any]:
    def check(given: Mapping[str, Any]) -> list[str]:
        return _problems(name, given)

    problems: list[str] = []
    given = read(args, ModelApiArgs, problems)
    problems += without_echoes(problems, check(given))
    if problems:
        raise ArgumentsError(_KIND, name, problems)
    return checked_later(_KIND, name, given, check)


def _problems(name: str, given: Mapping[str, Any]) -> list[str]:
    external: Mapping[str, Any] = given.get("external", {})
    problems = rules.found(
        [
            # It names the Secret and labels it.
            rules.instance("the resource's name", name),
            rules.label("namespace", given.get("namespace")),
            _endpoint("external.endpoint", external.get("endpoint")),
            rules.secret("external.api_key", external.get("api_key")),
        ]
    )
    problems += rules.secret_reference("external.secret_ref", external.get("secret_ref", {}))
    mode = given.get("mode")
    if mode in ("proxy", "hosted"):
        problems.append(f"mode is {mode!r}: not available in this version; use external")
    elif mode is not None:
        problems += rules.found([rules.one_of("mode", mode, ["external"])])
        if "external" not in given:
            problems.append("external is required with mode external; set it with its endpoint")
    if {"api_key", "secret_ref"} <= external.keys():
        problems.append("external.api_key and external.secret_ref exclude each other; remove one")
    return problems


def _endpoint(path: str, value: object) -> str | None:
    text = known(value)
    problem = rules.endpoint(path, text)
    if text is None or problem is not None:
        return problem
    try:
        TypeAdapter[str](Url).validate_python(text)
    except ValidationError as error:
        rule = error.errors()[0]["msg"].removeprefix("Value error, ")
        return f"{path} {rule}; correct it"
    return None
