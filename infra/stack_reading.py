"""Reads a stack's configuration and tells what is wrong with it.

Everything is checked before the first resource, so that a fault in the last store leaves the first
one alone.
"""

import difflib
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pulumi
from pulumi.runtime import config as runtime_config
from pydantic import ValidationError

from pulumi_kaos import dsn_problems
from stack_config import SecretEntry, StackConfig, StackError, Store

DEV_POSTGRES_SECRET = SecretEntry(name="kaos-memory-pgvector", key="dsn")
"""What every `dev_postgres` makes in its namespace."""
_SERVER = {"host", "hostaddr", "port", "dbname"}
"""Parameters of a DSN that name its server or database, instead of the address."""


def read_config(config: pulumi.Config) -> StackConfig:
    """Read and check the stack's configuration.

    Raises:
        StackError: with every problem of the first stage that finds any: the shape of each entry,
            then secrets and what entries say of each other. The components' own rules come after.
    """
    given: dict[str, Any] = {}
    problems: list[str] = []
    for key in StackConfig.model_fields:
        value = _value(config, key, problems)
        if value is not None:
            given[key] = value
        if value is not None and pulumi.runtime.is_config_secret(config.full_key(key)):
            problems.append(
                f"{config.full_key(key)} holds a secret, but is read in plain; move the secret to "
                "a key of its own and name that key"
            )
    try:
        stack = StackConfig.model_validate(given)
    except ValidationError as error:
        told = [problem.split(" ")[0] for problem in problems]
        found = [it for it in error.errors() if config.full_key(str(it["loc"][0])) not in told]
        problems += _unknown_keys(config, None)
        raise StackError(problems + [_sentence(config, it) for it in found]) from None
    problems += _unknown_keys(config, stack.secrets)
    problems += _secret_problems(config, stack)
    problems += _cross_problems(config, stack) + _shared_problems(config, stack)
    if problems:
        raise StackError(problems)
    return stack


def _value(config: pulumi.Config, key: str, problems: list[str]) -> Any:
    """Return a setting, or None where the file has no or an empty value."""
    text = config.get(key)
    if text in (None, "", "null"):
        return None
    if key in ("image", "postgres_image", "deletion_policy"):
        return text
    try:
        return config.get_object(key)
    except pulumi.ConfigTypeError:
        problems.append(f"{config.full_key(key)} is text; write it as a list or a mapping")
        return None


def _sentence(config: pulumi.Config, found: Any) -> str:
    path = ".".join(str(part) for part in found["loc"])
    full = config.full_key(path)
    if path == "image":
        return f"{full} is not set; build, push and pin the image with `make image`"
    if found["type"] == "missing":
        return f"{full} is required but not given; set it in the stack's file"
    if found["type"] == "extra_forbidden":
        return f"{full} is not known here; remove it or correct its name"
    return f"{full}: {found['msg'].removeprefix('Value error, ')}; correct it in the stack's file"


def _unknown_keys(config: pulumi.Config, secrets: Mapping[str, str] | None) -> list[str]:
    """Return the keys of the project that nothing here reads, such as misspelt ones.

    Where it is not known which secrets the stack names, all of them may be.
    """
    given = {**runtime_config.get_config_env(), **runtime_config.CONFIG.get()}
    known = [*StackConfig.model_fields, *(secrets or {})]
    problems: list[str] = []
    for full in sorted(given):
        name, _, key = full.partition(":")
        unnamed = secrets is None and pulumi.runtime.is_config_secret(full)
        if name != config.name or key in known or unnamed:
            continue
        close = difflib.get_close_matches(key, known, n=1)
        hint = f"did you mean {config.full_key(close[0])}?" if close else "remove it"
        problems.append(f"{full} is neither a setting nor a secret that the stack names; {hint}")
    return problems


def _secret_problems(config: pulumi.Config, stack: StackConfig) -> list[str]:
    problems: list[str] = []
    for key, purpose in stack.secrets.items():
        full = config.full_key(key)
        command = f"pulumi config set --secret {key} --stack {pulumi.get_stack()}"
        if key in StackConfig.model_fields:
            problems.append(f"{full} cannot hold {purpose}: it is a setting; name another key")
        elif config.get(key) is None:
            problems.append(f"{full}, {purpose}, is not set; set it: {command}")
        elif not pulumi.runtime.is_config_secret(full):
            problems.append(f"{full}, {purpose}, stands in plain in the stack's file; {command}")
    for store in stack.stores:
        key = store.database.dsn_from
        value = config.get(key) if key else None
        if key and value is not None:
            full = f"{config.full_key(key)}, {stack.secrets[key]},"
            problems += [f"{full} {problem}" for problem in dsn_problems(value)]
    return list(dict.fromkeys(problems))


def _cross_problems(config: pulumi.Config, stack: StackConfig) -> list[str]:
    problems: list[str] = []
    names: dict[tuple[str, str], int] = {}
    databases: dict[str, Mapping[str, Any]] = {}
    for index, store in enumerate(stack.stores):
        here = f"{config.full_key('stores')}.{index}"
        first = names.setdefault((store.namespace, store.name), index)
        if first != index:
            problems.append(f"{here} has the namespace and name of stores.{first}; rename one")
            continue
        dev = store.database.dev_postgres
        if dev is not None and databases.setdefault(store.namespace, dev) != dev:
            problems.append(
                f"{here}.database.dev_postgres differs from that of an earlier store in "
                f"{store.namespace}, which has one database; make them equal"
            )
        if "connection_secret_ref" in store.external:
            problems.append(
                f"{here}.storage.external.connection_secret_ref is set from database; remove it"
            )
        for role, model in store.models.given().items():
            api = model.model_api
            if api not in stack.model_apis:
                known = ", ".join(stack.model_apis)
                problems.append(
                    f"{here}.models.{role}.model_api is {api!r}, which is not in model_apis "
                    f"({known}); add it or name one of these"
                )
    return problems


def _shared_problems(config: pulumi.Config, stack: StackConfig) -> list[str]:
    """Return the stores that would write into one schema, as far as the stack can tell.

    Two Secrets of yours may hold one DSN; those the service refuses when it starts, by the name of
    the store that its schema belongs to.
    """
    problems: list[str] = []
    schemas: dict[tuple[str, ...], tuple[int, Store]] = {}
    for index, store in enumerate(stack.stores):
        schema = (*_database_of(config, store), store.collection)
        first, other = schemas.setdefault(schema, (index, store))
        twins = (store.namespace, store.name) == (other.namespace, other.name)
        if first != index and not twins:
            problems.append(
                f"{config.full_key('stores')}.{index} shares its database and collection "
                f"{store.collection} with stores.{first}; give it another "
                "storage.external.collection"
            )
    return problems


def _database_of(config: pulumi.Config, store: Store) -> tuple[str, ...]:
    """Return what two stores on one database have in common."""
    database = store.database
    if database.dsn_from:
        return _address(config.get(database.dsn_from) or f"the secret {database.dsn_from}")
    secret = database.connection_secret or DEV_POSTGRES_SECRET
    return (store.namespace, secret.name, secret.key)


def _address(dsn: str) -> tuple[str, ...]:
    """Return server and database of a DSN: who logs in makes no other database."""
    try:
        url = urlsplit(dsn.strip())
        host, port = url.hostname, url.port or 5432
    except ValueError:
        return (dsn,)
    if host is None or _SERVER & parse_qs(url.query).keys():
        return (dsn,)
    return (host, str(port), url.path.strip("/"))
