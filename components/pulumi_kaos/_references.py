"""References from one component to what another one made, as plain dictionaries."""

from typing import NotRequired, TypedDict

import pulumi


class SecretReference(TypedDict):
    """One entry of a Secret in the namespace of the component that uses it."""

    name: pulumi.Input[str]
    """Name of the Secret."""
    key: pulumi.Input[str]
    """Name of the entry in it."""


class ModelApiReference(TypedDict):
    """A model endpoint. From Python pass `model_api.reference`; from YAML name the outputs."""

    endpoint: pulumi.Input[str]
    """OpenAI-compatible base URL with its `/v1`, such as `https://api.openai.com/v1`."""
    secret_name: NotRequired[pulumi.Input[str]]
    """Secret that holds the key, in the namespace of the store. Omitted: no key is sent."""
    secret_key: NotRequired[pulumi.Input[str]]
    """Name of the entry in that Secret; goes with `secret_name`."""
