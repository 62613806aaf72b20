"""Environment variables of a container, and their way into a Deployment unchanged."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pulumi
import pulumi_kubernetes as k8s

from pulumi_kaos._settings import VARIABLES

MAX_VARIABLE_BYTES = 131_072
"""Of `NAME=value` with the NUL at its end: MAX_ARG_STRLEN of execve(2)."""
MAX_ENVIRONMENT_BYTES = 524_288
"""Of all plain variables of a container: escaped, these still fit into one object of etcd."""

_NAMES = {variable.path: name for name, variable in VARIABLES.items()}


def variable_name(*path: str) -> str:
    """Return the variable of a field of the settings, such as `("store", "name")`."""
    return _NAMES[path]


@dataclass(frozen=True)
class Variable:
    """One variable of a container: a literal text or an entry of a Secret."""

    name: str
    value: pulumi.Input[str] | None = None
    secret: Mapping[str, Any] | None = None
    """Reference with `name` and `key`."""

    def manifest(self) -> k8s.core.v1.EnvVarArgs:
        """Return the variable as Kubernetes takes it."""
        if self.secret is not None:
            reference = k8s.core.v1.SecretKeySelectorArgs(
                name=self.secret["name"], key=self.secret["key"]
            )
            source = k8s.core.v1.EnvVarSourceArgs(secret_key_ref=reference)
            return k8s.core.v1.EnvVarArgs(name=self.name, value_from=source)
        if isinstance(self.value, str):
            # Kubernetes drops an empty value, which would look like a change ever after.
            return k8s.core.v1.EnvVarArgs(name=self.name, value=escaped(self.value) or None)
        value = pulumi.Output.from_input(self.value).apply(lambda text: escaped(text or ""))
        return k8s.core.v1.EnvVarArgs(name=self.name, value=value)


def escaped(text: str) -> str:
    """Return text that reads as `text` after the kubelet expanded it.

    The kubelet replaces `$(NAME)` in values and reads `$$` as `$`; a prompt may hold either.
    """
    return text.replace("$", "$$")


def fits_environment(path: str, name: str, text: str) -> str | None:
    """Return the problem with a text that no process can get as a variable, else None."""
    try:
        size = len(f"{name}={text}\0".encode())
    except UnicodeEncodeError:
        return f"{path} holds half of a surrogate pair, which UTF-8 cannot express; remove it"
    if "\0" in text:
        return f"{path} holds a NUL character, which no environment variable can; remove it"
    if size > MAX_VARIABLE_BYTES:
        return (
            f"{path} takes {size} bytes as a variable: Linux starts no process with more than "
            f"{MAX_VARIABLE_BYTES}; shorten it"
        )
    return None
