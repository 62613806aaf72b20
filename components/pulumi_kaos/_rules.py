"""Rules for single values: Kubernetes names, image references, quantities, endpoints.

Each function returns the problem as a sentence, or None. Outputs are passed over: they are checked
again when their value is known.
"""

import re
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any
from urllib.parse import urlsplit

from pydantic import SecretStr, TypeAdapter, ValidationError

from pulumi_kaos._arguments import known
from pulumi_kaos._settings import Dsn

MAX_SECRET = 8_192
"""Characters of a key or a DSN; what carries more than a token of a login is a mistake."""
MAX_TOKEN = 256
"""Characters of `rollout_token`."""

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_SUBDOMAIN = re.compile(rf"{_LABEL.pattern}(\.{_LABEL.pattern})*")
_SECRET_KEY = re.compile(r"(?!\.\.)(?!\.$)[-._a-zA-Z0-9]{1,253}")
_PART = r"[a-z0-9]+(?:(?:\.|__?|-+)[a-z0-9]+)*"
_IMAGE = re.compile(
    rf"((?:[a-zA-Z0-9.-]+(?::\d+)?/)?{_PART}(?:/{_PART})*)(:\w[\w.-]{{0,127}})?(@sha256:[0-9a-f]{{64}})?",
    re.ASCII,
)
_RESOURCES = ("cpu", "memory", "ephemeral-storage")
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


def instance(path: str, value: str) -> str | None:
    """Check the name of a resource that names objects and is a label's value on them."""
    if len(value) <= 63:
        return subdomain(path, value)
    return f"{path} is {_clipped(value)}: must be 63 characters at most; choose a shorter name"


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
    pinned = named and (named.group(2) or named.group(3)) and not text.endswith(":latest")
    if named and pinned and len(named.group(1)) <= 255:
        return None
    return (
        f"{path} is {_clipped(text)}: must be an image reference with a tag other than 'latest', "
        "or with a digest; pin it (`make image` does)"
    )


def endpoint(path: str, value: object) -> str | None:
    """Check the address in a URL: a host, a port that exists, and no credentials.

    They would show in the pod's specification. What is no `http` URL at all the settings refuse.
    """
    text = known(value)
    if text is None or not text.startswith(("http://", "https://")):
        return None
    try:
        url = urlsplit(text)
        host, port = url.hostname, url.port
    except ValueError:
        host, port = None, None
    else:
        if "@" in url.netloc:
            return (
                f"{path} must not carry a user or password; put the key into the ModelAPI's api_key"
            )
    if host and port != 0:
        return None
    return f"{path} is {_clipped(text)}: must name a host and, if any, a port of 1 to 65535"


def dsn_problems(dsn: str) -> list[str]:
    """Return what is wrong with a DSN that is known: the service's rule, and one line of ASCII.

    For programs that hold it; a problem reads on after its name, and never shows it.
    """
    try:
        TypeAdapter[SecretStr](Dsn).validate_python(dsn)
    except ValidationError as error:
        return [f"{error.errors()[0]['msg'].removeprefix('Value error, ')}; set it again"]
    return found([secret("", dsn)])


def secret(path: str, value: object) -> str | None:
    """Check a key or a DSN: one line of ASCII that a header or a variable can carry."""
    text = known(value)
    if text is None:
        return None
    plain = text.isascii() and text.isprintable() and " " not in text
    if plain and 0 < len(text) <= MAX_SECRET:
        return None
    rule = "is empty or holds white space" if not text or any(map(str.isspace, text)) else ""
    rule = rule or (
        f"is longer than {MAX_SECRET} characters" if plain else "holds characters other than ASCII"
    )
    return f"{path} {rule}; set it again, or leave it out".strip()


def token(path: str, value: object) -> str | None:
    """Check a short text that an annotation carries."""
    text = known(value)
    if text is None or (text.isprintable() and len(text) <= MAX_TOKEN):
        return None
    return (
        f"{path} is {_clipped(text)}: must be printable characters, {MAX_TOKEN} at most; "
        "choose such a text"
    )


def quantity(path: str, value: str) -> str | None:
    """Check a positive quantity of Kubernetes, such as `500m` or `1Gi`."""
    if _amount(value):
        return None
    return f"{path} is {_clipped(value)}: must be a positive quantity such as 250m or 512Mi"


def resources(path: str, requests: Mapping[str, str], limits: Mapping[str, str]) -> list[str]:
    """Check requests and limits: sound quantities, and no request above its limit."""
    kinds = {"requests": requests, "limits": limits}
    problems = [
        f"{path}.{kind}.{name} is not a resource of these pods; use {', '.join(_RESOURCES)}"
        for kind, values in kinds.items()
        for name in values
        if name not in _RESOURCES
    ]
    problems += found(
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
