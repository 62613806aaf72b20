"""DevPostgres: one database per namespace, its role, its secrets, and what outlives a stack."""

import math
from collections.abc import Iterator
from typing import Any, cast
from urllib.parse import urlsplit

import pytest

from kaos_dev.embedded_postgres import EmbeddedPostgres
from kaos_dev.recording import Recording, Resource, record
from kaos_dev.render import Rendered
from pulumi_kaos import ArgumentsError, DevPostgres, DevPostgresArgs, dev_postgres_problems
from pulumi_kaos import _rules as rules
from pulumi_kaos._dev_postgres_pod import INIT_SQL

from .samples import recorded, rendered, store, store_args

NAME = "kaos-memory-pgvector"


def database(**changes: Any) -> DevPostgres:
    return DevPostgres("acme", cast("DevPostgresArgs", {"namespace": "acme", **changes}))


def built(**changes: Any) -> Rendered:
    return rendered(lambda: database(**changes))


def pod(**changes: Any) -> dict[str, Any]:
    return built(**changes).manifest("StatefulSet", NAME)["spec"]["template"]["spec"]


def test_the_well_known_secret_holds_the_dsn_of_an_ordinary_role():
    secret = built().manifest("Secret", NAME)
    assert list(secret["stringData"]) == ["dsn"]
    password = secret["stringData"]["dsn"].split(":")[2].split("@")[0]
    assert secret["stringData"]["dsn"] == (
        f"postgresql://kaos:{password}@{NAME}.acme.svc.cluster.local:5432/kaos"
    )
    assert password.startswith("TAINT")


def test_a_store_connects_by_reference():
    def program() -> None:
        reference = database().reference
        store(store_args(storage__external__connection_secret_ref=reference))

    environment = rendered(program).container_environment("memorystore-support")
    assert environment["KAOS_MEMORY_EXTERNAL_DSN"].endswith("/kaos")


def test_the_superuser_has_another_password_than_the_role():
    found = built()
    logins = next(m for m in found.manifests() if m["metadata"]["name"].startswith("acme-logins-"))
    superuser, role = (logins["stringData"][k] for k in ("superuser-password", "password"))
    assert superuser != role
    assert role in found.manifest("Secret", NAME)["stringData"]["dsn"]
    assert logins["immutable"] is True


def test_passwords_cannot_be_guessed_and_need_no_quoting_in_the_dsn():
    passwords = recorded(database).of_type("random:index/randomPassword:RandomPassword")
    assert len(passwords) == 2
    for password in passwords:
        assert password.inputs["special"] is False
        assert password.inputs["length"] * math.log2(62) >= 128
    dsn = built().manifest("Secret", NAME)["stringData"]["dsn"]
    url = urlsplit(dsn)
    assert (url.username, url.hostname) == ("kaos", f"{NAME}.acme.svc.cluster.local")
    assert url.password is not None
    assert url.password.isalnum()


def test_the_role_and_its_database_are_made_by_sql_without_the_password():
    found = built()
    scripts = next(m for m in found.manifests() if m["kind"] == "ConfigMap")
    assert scripts["data"] == {"10-kaos.sql": INIT_SQL}
    assert "TAINT" not in str(scripts)
    # Another script is another name, and the image's user, no owner of it, must read it.
    assert scripts["immutable"] is True
    modes = [v["configMap"]["defaultMode"] for v in pod()["volumes"] if "configMap" in v]
    assert modes == [0o444]
    spec = pod()
    mount = next(m for m in spec["containers"][0]["volumeMounts"] if m["name"] == "init")
    assert mount == {
        "name": "init",
        "mountPath": "/docker-entrypoint-initdb.d",
        "readOnly": True,
    }
    variables = {v["name"]: v for v in spec["containers"][0]["env"]}
    assert variables["POSTGRES_USER"]["value"] == "postgres"
    for name, key in [
        ("POSTGRES_PASSWORD", "superuser-password"),
        ("KAOS_ROLE_PASSWORD", "password"),
    ]:
        reference = variables[name]["valueFrom"]["secretKeyRef"]
        assert reference["key"] == key
        assert reference["name"].startswith("acme-logins-")


@pytest.fixture(scope="module")
def postgres() -> Iterator[EmbeddedPostgres]:
    with EmbeddedPostgres(fsync=False) as server:
        # As in the public image: pgvector is installed and in no database.
        server.execute("DROP EXTENSION vector", database="template1")
        yield server


def test_the_sql_makes_an_owner_that_row_level_security_binds(
    postgres: EmbeddedPostgres, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("KAOS_ROLE_PASSWORD", 'it\'s $(quoted) "here"')
    postgres.execute(INIT_SQL)
    flags = "rolcanlogin, rolcreaterole, rolsuper, rolbypassrls, rolcreatedb"
    roles = postgres.execute(f"SELECT {flags} FROM pg_roles WHERE rolname = 'kaos'")
    assert roles == "t|t|f|f|f"
    owner = "SELECT pg_get_userbyid(datdba) FROM pg_database WHERE datname = 'kaos'"
    assert postgres.execute(owner) == "kaos"
    vectors = "SET ROLE kaos; CREATE SCHEMA s; CREATE TABLE s.t (v vector(3))"
    postgres.execute(vectors, database="kaos")


def test_a_failing_statement_does_not_log_the_password(
    postgres: EmbeddedPostgres, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("KAOS_ROLE_PASSWORD", "TAINT-in-a-failing-statement")
    postgres.execute("DROP ROLE IF EXISTS kaos2; CREATE ROLE kaos2")
    with pytest.raises(Exception, match="already exists"):
        postgres.execute(INIT_SQL.replace("CREATE ROLE kaos ", "CREATE ROLE kaos2 "))
    assert "TAINT-in-a-failing-statement" not in postgres.log


@pytest.mark.parametrize(("policy", "kept"), [(None, True), ("retain", True), ("delete", False)])
def test_the_volume_and_all_that_holds_its_passwords_outlive_the_stack(
    policy: str | None, kept: bool
):
    # In the cluster the passwords of a volume stand in the logins' Secret only.
    resources = recorded(lambda: database(deletion_policy=policy)).resources
    flags = {r.name: (r.protect, r.retain_on_delete) for r in resources if is_data(r)}
    names = {"acme", "acme-password", "acme-superuser", "acme-logins"}
    assert flags == dict.fromkeys(names, (kept, kept))
    others = {(r.protect, r.retain_on_delete) for r in resources if not is_data(r)}
    assert others == {(False, False)}


def is_data(resource: Resource) -> bool:
    kind = resource.type.split(":")[-1]
    return kind in ("RandomPassword", "PersistentVolumeClaim") or (
        kind == "Secret" and "superuser-password" in str(resource.inputs)
    )


def test_the_volume_is_as_asked_for():
    claim = built(size="20Gi", storage_class="fast").manifest("PersistentVolumeClaim", NAME)
    assert claim["spec"] == {
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": "fast",
        "resources": {"requests": {"storage": "20Gi"}},
    }
    assert claim["metadata"]["annotations"] == {"pulumi.com/skipAwait": "true"}
    default = built().manifest("PersistentVolumeClaim", NAME)["spec"]
    assert default["resources"] == {"requests": {"storage": "5Gi"}}
    assert "storageClassName" not in default


def test_the_data_lies_below_the_mount():
    container = pod()["containers"][0]
    data = next(v["value"] for v in container["env"] if v["name"] == "PGDATA")
    mount = next(m["mountPath"] for m in container["volumeMounts"] if m["name"] == "data")
    assert data.startswith(f"{mount}/")


def test_the_pod_runs_as_the_images_user_on_a_read_only_root():
    spec = pod()
    assert (spec["securityContext"]["runAsUser"], spec["securityContext"]["fsGroup"]) == (999, 999)
    assert spec["containers"][0]["securityContext"]["readOnlyRootFilesystem"] is True
    writable = {v["name"] for v in spec["volumes"] if "emptyDir" in v}
    assert writable == {"run", "tmp", "shm"}
    assert all(v["emptyDir"]["sizeLimit"] for v in spec["volumes"] if "emptyDir" in v)


def test_probes_do_not_see_the_server_that_only_initialises():
    container = pod()["containers"][0]
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert container[probe]["exec"]["command"][:2] == ["pg_isready", "--host=127.0.0.1"]


def test_a_pod_that_never_became_ready_does_not_block_the_update_that_mends_it():
    spec = built().manifest("StatefulSet", NAME)["spec"]
    assert spec["podManagementPolicy"] == "Parallel"


def test_the_server_has_time_for_a_checkpoint_and_room_for_parallel_builds():
    spec = pod()
    assert spec["terminationGracePeriodSeconds"] >= 60
    shm = next(v["emptyDir"] for v in spec["volumes"] if v["name"] == "shm")
    assert shm["medium"] == "Memory"
    size = rules._amount(shm["sizeLimit"])
    assert size is not None
    assert size > 64 * 2**20  # a container's own


def test_the_image_can_be_another():
    assert pod(image="local/pg:1")["containers"][0]["image"] == "local/pg:1"
    assert pod()["containers"][0]["image"] == "docker.io/pgvector/pgvector:pg18"


def test_preview_and_update_register_the_same():
    seen = [
        {(r.type, r.name, r.parent) for r in recorded(database, preview=preview).resources}
        for preview in (True, False)
    ]
    assert seen[0] == seen[1]
    assert len(seen[0]) == 10


BROKEN: dict[str, tuple[dict[str, Any], str]] = {
    "size": ({"size": "big"}, "size is 'big': must be a positive quantity"),
    "no size": ({"size": "0Gi"}, "size is '0Gi': must be a positive quantity"),
    "image": ({"image": "pgvector"}, "image is 'pgvector': must be an image reference with a tag"),
    "policy": ({"deletion_policy": "keep"}, "deletion_policy is 'keep': must be retain or delete"),
    "class": ({"storage_class": "Fast"}, "storage_class is 'Fast'"),
    "namespace": ({"namespace": "a_b"}, "namespace is 'a_b'"),
    "unknown": ({"sise": "1Gi"}, "sise is not an argument; did you mean size?"),
    "memory": ({"resources": {"requests": {"memory": "2Gi"}}}, "must not exceed the limit 1Gi"),
}


def test_the_resources_name_leaves_room_for_what_is_named_after_it():
    assert dev_postgres_problems("x" * 237, {"namespace": "acme"}) == []
    (problem,) = dev_postgres_problems("x" * 238, {"namespace": "acme"})
    assert problem.endswith(
        "the resource's name has 238 characters: must have 237 at most; shorten it"
    )
    (problem,) = dev_postgres_problems("Acme", {"namespace": "acme"})
    assert "the resource's name is 'Acme'" in problem


def test_two_databases_whose_names_run_into_each_other():
    def program() -> None:
        for name in ("a", "a-logins", "a-dsn"):
            DevPostgres(name, cast("DevPostgresArgs", {"namespace": name}))

    assert len(recorded(program).of_type("kubernetes:core/v1:Secret")) == 6


@pytest.mark.parametrize("case", BROKEN)
@pytest.mark.parametrize("preview", [True, False], ids=["preview", "update"])
def test_nothing_is_registered_when_a_rule_is_broken(case: str, preview: bool):
    changes, text = BROKEN[case]
    recording = Recording()

    def program() -> None:
        database(**changes)

    with pytest.raises(ArgumentsError) as caught:
        record(program, preview=preview, into=recording)
    (problem,) = caught.value.problems
    assert problem.startswith("DevPostgres acme: ")
    assert text in problem
    assert len(recording.resources) == 1
