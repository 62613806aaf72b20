"""Two stores in one schema are refused wherever the stack can tell; two schemas are not."""

from pathlib import Path
from typing import Any

import pulumi
import pytest

from kaos_memory.settings import ExternalStorage

from .samples import SECRETS, run, stack, store

DSN = SECRETS["acme_dsn"]
COLLECTION = "KAOS_MEMORY_EXTERNAL_COLLECTION"
FROM_ACME = {"dsn_from": "acme_dsn"}
FROM_OTHER = {"dsn_from": "other_dsn"}
WELL_KNOWN = {"connection_secret": {"name": "kaos-memory-pgvector", "key": "dsn"}}


def own_secret(name: str = "mine") -> dict[str, Any]:
    return {"connection_secret": {"name": name, "key": "url"}}


def collection(name: str) -> dict[str, Any]:
    return {"storage": {"external": {"collection": name}}}


def by_env(name: str) -> dict[str, Any]:
    return {"container": {"env": [{"name": COLLECTION, "value": name}]}}


DEFAULT = ExternalStorage.model_fields["collection"].default

# The second store beside the first, which has defaults and the given database.
SHARED: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "one database of a namespace": ({"dev_postgres": {}}, {"database": {"dev_postgres": {}}}, DSN),
    "the default written out": (FROM_ACME, {"database": FROM_ACME, **collection(DEFAULT)}, DSN),
    "one DSN in two namespaces": (FROM_ACME, {"database": FROM_ACME, "namespace": "globex"}, DSN),
    "two keys with one DSN": (FROM_ACME, {"database": FROM_OTHER}, DSN),
    "two logins of one database": (
        FROM_ACME,
        {"database": FROM_OTHER, "namespace": "globex"},
        "postgres://other:pw@DB:5432/kaos/?sslmode=require",
    ),
    "the Secret of the namespace's database": ({"dev_postgres": {}}, {"database": WELL_KNOWN}, DSN),
    "one Secret": (own_secret(), {"database": own_secret()}, DSN),
    "a collection by variable": (
        FROM_ACME,
        {"database": FROM_ACME, **collection("sales"), **by_env(DEFAULT)},
        DSN,
    ),
}
APART: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "two collections": (FROM_ACME, {"database": FROM_ACME, **collection("sales")}, DSN),
    "two collections by variable": (FROM_ACME, {"database": FROM_ACME, **by_env("sales")}, DSN),
    "two databases of a server": (FROM_ACME, {"database": FROM_OTHER}, f"{DSN}2"),
    "two hosts by parameter": (
        {"dsn_from": "other_dsn"},
        {"database": {"dsn_from": "acme_dsn"}},
        "postgresql://TAINT-dsn@db/kaos?host=other",
    ),
    "two ports": (FROM_ACME, {"database": FROM_OTHER}, "postgresql://db:6432/kaos"),
    "one Secret's name in two namespaces": (
        own_secret(),
        {"database": own_secret(), "namespace": "globex"},
        DSN,
    ),
    "two Secrets": (own_secret(), {"database": own_secret("yours")}, DSN),
    "two kinds": (FROM_ACME, {"database": {"dev_postgres": {}}}, DSN),
}


def configured(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    return stack(store(database=first), store(**{"name": "sales", **second}))


def secrets(config: dict[str, Any], other: str) -> dict[str, str]:
    known = {**SECRETS, "other_dsn": other}
    return {name: value for name, value in known.items() if name in str(config)}


@pytest.mark.parametrize("case", SHARED)
def test_a_schema_belongs_to_one_store(tmp_path: Path, case: str):
    first, second, other = SHARED[case]
    config = configured(first, second)
    with pytest.raises(pulumi.RunError) as caught:
        run(tmp_path, config, secrets(config, other))
    assert str(caught.value) == (
        "kaos:stores.1 shares its database and collection kaos_memory with stores.0; "
        "give it another storage.external.collection"
    )


@pytest.mark.parametrize("case", APART)
def test_stores_with_a_schema_each_are_taken(tmp_path: Path, case: str):
    first, second, other = APART[case]
    config = configured(first, second)
    assert run(tmp_path, config, secrets(config, other)).manifests()


def test_the_databases_secret_is_the_one_that_the_stack_compares(tmp_path: Path):
    config = configured({"dev_postgres": {}}, {"database": WELL_KNOWN, **collection("sales")})
    rendered = run(tmp_path, config)
    dsns = [
        rendered.container_environment(f"memorystore-{name}")["KAOS_MEMORY_EXTERNAL_DSN"]
        for name in ("support", "sales")
    ]
    assert dsns[0] == dsns[1]
