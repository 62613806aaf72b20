"""Rules for single values: Kubernetes names, image references, quantities, endpoints.

Each function returns the problem as a sentence, or None. Outputs are passed over: they are checked
again when their value is known.
"""

import re
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any
from urllib.parse import urlsplit

from pulumi_kaos._arguments import known

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_SUBDOMAIN = re.compile(rf"{_LABEL.pattern}(\.{_LABEL.pattern})*")
_SECRET_KEY = re.compile(r"[-._a-zA-Z0-9]{1,253}")
_IMAGE = re.compile(r"[^\s@:]+(:\d+(?=/))?(/[^\s@:]+)*(:[\w][\w.-]{0,127})?(@sha256:[0-9a-f]{64})?")
_QUANTITY = re.compile(r"(\d+(?:\.\d+)?)(m|k|Ki|M|Mi|G|Gi|T|Ti)?")
_FACTORS = {
    "": Decimal(1),
    "m": Decimal("0.001"),
    "k": Decimal(10**3),
    "Ki": Decimal(2**10),
    "M": Decimal(10**6),
    "Mi": Decimal(2**20),
    "G": Decimal(10**9),
    "Gi": Decimal(2**30),
    "T": Decimal(10**12),
    "Ti": Decimal(2**40),
}


def label(path: str, value: object, *, prefix: str = "") -> str | None:
    """Check a DNS-1123 label (RFC 1123): Services, namespaces. `prefix` is put in front of it."""
    text = known(value)
    if text is None or (_LABEL.fullmatch(text) and len(prefix + text) <= 63):
        return None
    room = 63 - len(prefix)
    named = f" ({prefix}<name> is a host label of the endpoint)" if prefix else ""
    return (
        f"{path} is {_clipped(text)}: must be lower-case letters, digits and inner '-', "
        f"{room} characters at most{named}; choose such a name"
    )


def subdomain(path: str, value: object) -> str | None:
    """Check a DNS-1123 subdomain: most Kubernetes objects, among them Secrets."""
    text = known(value)
    if text is None or (_SUBDOMAIN.fullmatch(text) and len(text) <= 253):
        return None
    return (
        f"{path} is {_clipped(text)}: must be a Kubernetes name (lower-case letters, digits, "
        "inner '-' and '.', 253 characters at most); correct it"
    )


def secret_key(path: str, value: object) -> str | None:
    """Check the name of an entry of a Secret."""
    text = known(value)
    if text is None or _SECRET_KEY.fullmatch(text):
        return None
    return (
        f"{path} is {_clipped(text)}: must name an entry of a Secret (letters, digits, '-', '_' "
        "and '.'); correct it"
    )


def image(path: str, value: object) -> str | None:
    """Check an image reference. It says which version: pods of one store must run the same."""
    text = known(value)
    if text is None:
        return None
    named = _IMAGE.fullmatch(text)
    if named and (named.group(3) or named.group(4)) and not text.endswith(":latest"):
        return None
    return (
        f"{path} is {_clipped(text)}: must be an image reference with a tag other than 'latest', "
        "or with a digest; pin it (`make image` does)"
    )


def endpoint(path: str, value: object) -> str | None:
    """Check that a URL carries no credentials: it shows in the pod's specification."""
    text = known(value)
    if text is None or "@" not in urlsplit(text).netloc:
        return None
    return f"{path} must not carry a user or password; put the key into the ModelAPI's api_key"


def quantity(path: str, value: str) -> str | None:
    """Check a positive quantity of Kubernetes, such as `500m` or `1Gi`."""
    if _amount(value):
        return None
    return f"{path} is {_clipped(value)}: must be a positive quantity such as 250m or 512Mi"


def resources(path: str, requests: Mapping[str, str], limits: Mapping[str, str]) -> list[str]:
    """Check requests and limits: sound quantities, and no request above its limit."""
    kinds = {"requests": requests, "limits": limits}
    problems = found(
        quantity(f"{path}.{kind}.{name}", value)
        for kind, values in kinds.items()
        for name, value in values.items()
    )
    if problems:
        return problems
    return [
        f"{path}.requests.{name} is {requests[name]}: must not exceed the limit {limits[name]}; "
        "lower it or raise the limit"
        for name in requests
        if name in limits and (_amount(requests[name]) or 0) > (_amount(limits[name]) or 0)
    ]


def one_of(path: str, value: object, allowed: Iterable[str]) -> str | None:
    """Check a word against those that are known."""
    words = list(allowed)
    if value in words:
        return None
    return f"{path} is {value!r}: must be {' or '.join(words)}; choose one"


def found(problems: Iterable[str | None]) -> list[str]:
    """Return the problems that are there."""
    return [problem for problem in problems if problem is not None]


def secret_reference(path: str, reference: Mapping[str, Any]) -> list[str]:
    """Check `name` and `key` of a reference to a Secret's entry."""
    return found(
        [
            subdomain(f"{path}.name", reference.get("name")),
            secret_key(f"{path}.key", reference.get("key")),
        ]
    )


def _amount(text: str) -> Decimal | None:
    """Return the number that a quantity stands for; None when malformed or zero."""
    parts = _QUANTITY.fullmatch(text)
    if parts is None:
        return None
    return (Decimal(parts.group(1)) * _FACTORS[parts.group(2) or ""]) or None


def _clipped(text: str) -> str:
    return repr(text if len(text) <= 80 else text[:77] + "...")
