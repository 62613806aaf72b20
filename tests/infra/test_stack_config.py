"""A faulty configuration stops the program before its first resource."""

from pathlib import Path
from typing import Any

import pulumi
import pytest

from kaos_dev.recording import Recording

from .samples import run, stack, store

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
    "the database's namespace": (
        stack(store(database={"dev_postgres": {"namespace": "other"}})),
        "kaos:stores.0.database.dev_postgres: namespace comes from the store's namespace; remove",
    ),
    "policy of a database": (
        stack(
            store(database={"dev_postgres": {"deletion_policy": "retain"}}),
            deletion_policy="delete",
        ),
        "kaos:stores.0.database.dev_postgres: deletion_policy comes from kaos:deletion_policy; r",
    ),
    "a key with the project's name": (
        stack(store(database={"dsn_from": "kaos:acme_dsn"})),
        "kaos:stores.0.database.dsn_from: is a key of this project; write it without a colon",
    ),
    "one fault in two stores": (
        stack(
            store(),
            store(name="sales", storage={"external": {"collection": "sales"}}),
            model_apis={"main": {"endpoint": "models:8000"}},
        ),
        "ModelAPI acme.main: external.endpoint must be an http:// or https:// URL",
    ),
    "misspelt setting": (
        stack(kubernets={"context": "production"}),
        (
            "kaos:kubernets is neither a setting nor a secret that the stack names; "
            "did you mean kaos:kubernetes?"
        ),
    ),
    "misspelt text": (
        stack(deletion_polcy="delete"),
        "kaos:deletion_polcy is neither a setting nor a secret that the stack names; did you mean",
    ),
    "misspelt and therefore missing": (
        stack(model_apis=None, model_api={}),
        (
            "kaos:model_api is neither a setting nor a secret that the stack names; "
            "did you mean kaos:model_apis?"
        ),
    ),
    "a key that nothing reads": (stack(other=1), "kaos:other is neither a setting nor a secret"),
    "text for a list": (stack(stores="abc"), "kaos:stores is text; write it as a list"),
    "text for a storage block": (
        stack(store(storage={"external": "pgvector"})),
        "MemoryStore acme.support: storage.external must be a mapping, not text",
    ),
    "address of an endpoint": (
        stack(model_apis={"main": {"endpoint": "http://[x/v1"}}),
        "ModelAPI acme.main: external.endpoint is 'http://[x/v1': must name a host",
    ),
    "another store's name": (
        stack(
            store(
                container={"env": [{"name": "KAOS_MEMORY_STORE_NAME", "value": "globex/support"}]}
            )
        ),
        "container.env.0 (KAOS_MEMORY_STORE_NAME) guards the schema against other stores",
    ),
    "rule of a store": (
        stack(store(), store(name="sales", namespace="b", max_read_scope="store")),
        "MemoryStore b.sales: max_read_scope is 'store'",
    ),
    "unknown field of a store": (
        stack(store(short_terms={})),
        "MemoryStore acme.support: short_terms is not an argument; did you mean short_term?",
    ),
    "storage of a store": (
        stack(store(storage=[])),
        "MemoryStore acme.support: storage must be a mapping, not a list",
    ),
    "rule of a database": (
        stack(store(database={"dev_postgres": {"size": "big"}})),
        "DevPostgres acme: size is 'big'",
    ),
    "rule of an endpoint": (
        stack(model_apis={"main": {"endpoint": "models:8000"}}),
        "ModelAPI acme.main: external.endpoint must be an http:// or https:// URL",
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
        "MemoryStore acme.support",
        "MemoryStore b.support",
        "DevPostgres b",
    ]


def test_a_secret_inside_the_stores_is_refused(tmp_path: Path):
    # `pulumi config set --secret --path 'stores[0].x'` makes the whole key secret.
    secrets = {"model_api_key": "sk-1", "kaos:stores": "[]"}
    with pytest.raises(pulumi.RunError, match="kaos:stores holds a secret, but is read in plain"):
        run(tmp_path, stack(), secrets)


def test_a_secret_is_not_called_misspelt_where_its_name_cannot_be_read(tmp_path: Path):
    with pytest.raises(pulumi.RunError) as caught:
        run(tmp_path, stack(store(namespace=None)))
    (problem,) = str(caught.value).splitlines()
    assert problem.startswith("kaos:stores.0.namespace: Input should be a valid string")


def test_a_list_that_is_text_is_not_also_missing(tmp_path: Path):
    with pytest.raises(pulumi.RunError) as caught:
        run(tmp_path, stack(stores="abc"))
    assert str(caught.value) == "kaos:stores is text; write it as a list or a mapping"


def test_one_fault_is_told_once(tmp_path: Path):
    faulty = stack(
        store(storage={"external": "pgvector"}),
        store(name="sales", storage={"external": {"collection": "sales"}}),
        model_apis={"main": {"endpoint": "models:8000"}},
    )
    with pytest.raises(pulumi.RunError) as caught:
        run(tmp_path, faulty)
    problems = str(caught.value).splitlines()
    assert [p for p in problems if p.startswith("ModelAPI")] == list(
        dict.fromkeys(p for p in problems if p.startswith("ModelAPI"))
    )
    assert [p for p in problems if "storage" in p] == [
        "MemoryStore acme.support: storage.external must be a mapping, not text"
    ]


def test_a_setting_without_a_value_is_not_given(tmp_path: Path):
    config = stack() | {"kaos:kubernetes": None, "kaos:postgres_image": None}
    assert run(tmp_path, config).manifests()
    with pytest.raises(pulumi.RunError, match="kaos:image is not set"):
        run(tmp_path, config | {"kaos:image": None})


def test_an_empty_external_block_is_not_given(tmp_path: Path):
    assert run(tmp_path, stack(store(storage={"external": None}))).manifests()
    assert run(tmp_path, stack(store(storage=None))).manifests()


@pytest.mark.parametrize(
    ("dsn", "rule"),
    [
        ("", "must be a URL postgresql://"),
        ("mysql://TAINT@db/kaos", "must be a URL postgresql://"),
        ("postgresql://TAINT@db/kaos\n", "is empty or holds white space; set it again"),
        ("postgresql://TAINT\u00e9@db/kaos", "holds characters other than ASCII; set it again"),
        ("postgresql://TAINT" + "x" * 9000, "is longer than 8192 characters; set it again"),
    ],
)
@pytest.mark.parametrize("preview", [True, False], ids=["preview", "update"])
def test_a_dsn_is_checked_at_once_and_never_shown(
    tmp_path: Path, dsn: str, rule: str, preview: bool
):
    config = stack(store(database={"dsn_from": "acme_dsn"}))
    secrets = {"model_api_key": "sk-1", "acme_dsn": dsn}
    recording = Recording()
    with pytest.raises(pulumi.RunError) as caught:
        run(tmp_path, config, secrets, preview=preview, into=recording)
    assert len(recording.resources) == 1
    assert f"kaos:acme_dsn, the DSN of store acme/support, {rule}" in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1
    assert "TAINT" not in str(caught.value)


@pytest.mark.parametrize("key", ["", " ", "TAINT\n", "TAINT\u00e9"])
def test_a_model_key_is_checked_at_once_and_never_shown(tmp_path: Path, key: str):
    recording = Recording()
    with pytest.raises(pulumi.RunError, match=r"ModelAPI acme\.main: external\.api_key ") as caught:
        run(tmp_path, stack(), {"model_api_key": key}, into=recording)
    assert len(recording.resources) == 1
    assert "TAINT" not in str(caught.value)
