"""A faulty configuration stops the program before its first resource, with every fault."""

from pathlib import Path
from typing import Any

import pulumi
import pytest

from kaos_dev.recording import Recording

from .samples import SECRETS, run, stack, store

BROKEN: dict[str, tuple[dict[str, Any], str]] = {
    "no image": (stack(image=None), "kaos:image is not set; build, push and pin the image"),
    "no stores": (stack(stores=None), "kaos:stores is required but not given"),
    "empty stores": (stack(stores=[]), "kaos:stores: List should have at least 1 item"),
    "no endpoints": (stack(model_apis=None), "kaos:model_apis is required but not given"),
    "policy": (stack(deletion_policy="keep"), "kaos:deletion_policy: Input should be 'retain' or"),
    "no namespace": (stack({"name": "x"}), "kaos:stores.0.namespace is required but not given"),
    "two databases": (
        stack(store(database={"dev_postgres": {}, "dsn_from": "acme_dsn"})),
        "kaos:stores.0.database: give exactly one of dev_postgres, connection_secret, dsn_from",
    ),
    "no database": (stack(store(database={})), "kaos:stores.0.database: give exactly one of"),
    "unknown database": (
        stack(store(database={"sqlite": {}})),
        "kaos:stores.0.database.sqlite is not known here",
    ),
    "two keys": (
        stack(
            model_apis={
                "main": {
                    "endpoint": "http://x/v1",
                    "api_key_from": "model_api_key",
                    "secret_ref": {"name": "x", "key": "y"},
                }
            }
        ),
        "kaos:model_apis.main: api_key_from and secret_ref exclude each other; remove one",
    ),
    "unknown endpoint": (
        stack(
            store(
                models={
                    "summarization": {"model_api": "other", "model": "m"},
                    "embedding": {"model_api": "main", "model": "m"},
                }
            )
        ),
        "kaos:stores.0.models.summarization.model_api is 'other', which is not in model_apis",
    ),
    "no secret": (
        stack(store(database={"dsn_from": "missing_dsn"})),
        "is not set; set it: pulumi config set --secret missing_dsn --stack test",
    ),
    "secret in plain": (
        stack(
            model_apis={"main": {"endpoint": "http://x/v1", "api_key_from": "plain"}}, plain="sk-1"
        ),
        "kaos:plain, the key of model_apis.main, stands in plain in the stack's file",
    ),
    "a setting as secret": (
        stack(store(database={"dsn_from": "image"})),
        "kaos:image cannot hold the DSN of store acme/support: it is a setting; name another key",
    ),
    "twins": (stack(store(), store()), "kaos:stores.1 has the namespace and name of stores.0"),
    "one schema": (
        stack(store(), store(name="sales")),
        "kaos:stores.1 shares its database and collection kaos_memory with stores.0",
    ),
    "two databases of a namespace": (
        stack(
            store(),
            store(
                name="sales",
                storage={"external": {"collection": "sales"}},
                database={"dev_postgres": {"size": "9Gi"}},
            ),
        ),
        "kaos:stores.1.database.dev_postgres differs from that of an earlier store in acme",
    ),
    "connection twice": (
        stack(store(storage={"external": {"connection_secret_ref": {"name": "x", "key": "y"}}})),
        "kaos:stores.0.storage.external.connection_secret_ref is set from database; remove it",
    ),
    "rule of a store": (
        stack(store(), store(name="sales", namespace="b", max_read_scope="store")),
        "MemoryStore b-sales: max_read_scope is 'store'",
    ),
    "unknown field of a store": (
        stack(store(short_terms={})),
        "MemoryStore acme-support: short_terms is not an argument; did you mean short_term?",
    ),
    "storage of a store": (
        stack(store(storage=[])),
        "MemoryStore acme-support: storage must be a mapping, not a list",
    ),
    "rule of a database": (
        stack(store(database={"dev_postgres": {"size": "big"}})),
        "DevPostgres acme: size is 'big'",
    ),
    "rule of an endpoint": (
        stack(model_apis={"main": {"endpoint": "models:8000"}}),
        "ModelAPI acme-main: external.endpoint must be an http:// or https:// URL",
    ),
}


@pytest.mark.parametrize("case", BROKEN)
@pytest.mark.parametrize("preview", [True, False], ids=["preview", "update"])
def test_nothing_is_registered_when_the_configuration_is_faulty(
    tmp_path: Path, case: str, preview: bool
):
    config, text = BROKEN[case]
    recording = Recording()
    with pytest.raises(pulumi.RunError) as caught:
        run(tmp_path, config, preview=preview, into=recording)
    assert text in str(caught.value)
    assert [r.type for r in recording.resources] == ["pulumi:pulumi:Stack"]


def test_all_faults_of_all_stores_are_told_at_once(tmp_path: Path):
    config = stack(
        store(replicas=0),
        store(namespace="b", engine="zep", database={"dev_postgres": {"size": ""}}),
    )
    with pytest.raises(pulumi.RunError) as caught:
        run(tmp_path, config)
    assert [line.split(":")[0] for line in str(caught.value).splitlines()] == [
        "MemoryStore acme-support",
        "MemoryStore b-support",
        "DevPostgres b",
    ]


def test_a_secret_inside_the_stores_is_refused(tmp_path: Path):
    # `pulumi config set --secret --path 'stores[0].x'` makes the whole key secret.
    secrets = SECRETS | {"kaos:stores": "[]"}
    with pytest.raises(pulumi.RunError, match="kaos:stores holds a secret, but is read in plain"):
        run(tmp_path, stack(), secrets)
