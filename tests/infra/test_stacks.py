"""The program on the committed stacks: providers, order, secrets, retention."""

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import pytest
import yaml

from kaos_dev.recording import Recording, Secret
from kaos_dev.render import REPOSITORY, Rendered
from kaos_memory.settings import from_environment

from .samples import demo, dev, run, stack, store

STACKS = {"dev": dev, "demo": demo}


@pytest.fixture(params=STACKS)
def render(request: pytest.FixtureRequest) -> Callable[..., Rendered]:
    return STACKS[request.param]


def test_preview_and_update_register_the_same(render: Callable[..., Rendered]):
    seen = [
        {(r.type, r.name, r.parent) for r in render(preview=preview).recording.resources}
        for preview in (True, False)
    ]
    assert seen[0] == seen[1]


def test_every_resource_has_an_explicit_provider(render: Callable[..., Rendered]):
    for resource in render().recording.resources:
        if resource.custom and not resource.type.startswith("pulumi:"):
            package = resource.type.split(":")[0]
            assert f"::pulumi:providers:{package}::" in resource.provider, resource.urn


def test_default_providers_are_disabled():
    assert (
        'pulumi:disable-default-providers:\n    value: ["*"]'
        in (REPOSITORY / "Pulumi.yaml").read_text()
    )


def plain_texts(value: Any) -> Iterator[str]:
    """Yield every text that is not in a secret's envelope."""
    if isinstance(value, Mapping):
        for key, item in cast("Mapping[str, Any]", value).items():
            yield key
            yield from plain_texts(item)
    elif isinstance(value, list):
        for item in cast("list[Any]", value):
            yield from plain_texts(item)
    elif isinstance(value, str):
        yield value


def leaks(recording: Recording) -> list[str]:
    places = [(r.urn, r.inputs) for r in recording.resources] + list(recording.outputs.items())
    return [urn for urn, values in places if any("TAINT" in text for text in plain_texts(values))]


@pytest.mark.parametrize("preview", [True, False], ids=["preview", "update"])
def test_secrets_travel_in_envelopes_only(render: Callable[..., Rendered], preview: bool):
    assert leaks(render(preview=preview).recording) == []


def test_the_search_for_leaks_finds_them():
    recording = demo().recording
    assert any("TAINT" in str(r.inputs) for r in recording.resources)
    assert list(plain_texts({"a": [Secret("TAINT"), {"b": "TAINT"}]})) == ["a", "b", "TAINT"]


def test_the_committed_files_hold_no_secret():
    """In plain, that is: `pulumi config set --secret` leaves an encrypted one there."""
    for path in (REPOSITORY / "stacks").glob("Pulumi.*.yaml"):
        text = path.read_text()
        named = re.findall(r"(?:api_key_from|dsn_from): *([\w-]+)", text)
        config = yaml.safe_load(text)["config"]
        for key in named:
            found = config.get(f"kaos:{key}", config.get(key, {"secure": ""}))
            assert list(found) == ["secure"], f"{path.name} holds {key} in plain"
        assert not re.search(r"\bsk-\w{8}", text)


def test_two_tenants_have_nothing_in_common():
    rendered = dev()
    dsns = {
        name: rendered.container_environment("memorystore-support", name)[
            "KAOS_MEMORY_EXTERNAL_DSN"
        ]
        for name in ("acme", "globex")
    }
    assert dsns["acme"] != dsns["globex"]
    for name, dsn in dsns.items():
        assert f"@kaos-memory-pgvector.{name}.svc.cluster.local:5432/kaos" in dsn


def test_a_store_is_created_after_what_it_needs():
    resources = {r.urn: r for r in demo().recording.resources}
    deployment = next(r for r in resources.values() if r.type.endswith(":Deployment"))
    needed: set[str] = set()
    waiting = list(deployment.dependencies)
    while waiting:
        resource = resources[waiting.pop()]
        needed.add(resource.type)
        waiting += resource.dependencies
    assert {
        "kubernetes:core/v1:Namespace",
        "kubernetes:apps/v1:StatefulSet",
        "kubernetes:core/v1:Secret",
    } <= needed


def test_the_exports_name_each_store():
    exported = dev().recording.exports["stores"]
    assert exported["globex/support"] == {
        "endpoint": "http://memorystore-support.globex.svc.cluster.local:8080",
        "ready": True,
        "phase": "Ready",
        "message": "2 of 2 replicas are available",
    }
    assert exported.keys() == {"acme/support", "globex/support"}


def test_the_demo_overflows_its_window_soon():
    settings = from_environment(demo().container_environment("memorystore-support"))
    assert settings.short_term.token_budget == 64
    assert settings.medium_term.enabled is True
    assert settings.storage.external is not None
    assert settings.storage.external.embedding_dims == 384
    assert settings.models.summarization.model == "kaos-deterministic"
    assert settings.models.embedding.model == "all-MiniLM-L6-v2"
    assert settings.models.embedding.api_key.get_secret_value() == "sk-TAINT-key"
    assert settings.store.name == "demo/support"


def test_the_example_shows_every_default_as_it_is():
    rendered = dev()
    example, least = (
        from_environment(rendered.container_environment("memorystore-support", name))
        for name in ("acme", "globex")
    )
    unlike = {
        name
        for name in type(example).model_fields
        if getattr(example, name) != getattr(least, name)
    }
    assert unlike == {"storage", "store", "medium_term"}
    assert example.medium_term.model_copy(update={"enabled": False}) == least.medium_term


@pytest.mark.parametrize(("policy", "kept"), [(None, True), ("delete", False)])
def test_retention_covers_namespace_volume_and_passwords(
    tmp_path: Path, policy: str | None, kept: bool
):
    resources = run(tmp_path, stack(deletion_policy=policy)).recording.resources
    protected = sorted(r.type.split(":")[-1] for r in resources if r.protect)
    passwords = ["RandomPassword", "RandomPassword", "Secret"]
    expected = ["Namespace", "PersistentVolumeClaim", *passwords]
    assert protected == (expected if kept else [])
    assert all(r.retain_on_delete is r.protect for r in resources)


def test_a_dsn_from_the_stack_goes_into_a_secret(tmp_path: Path):
    rendered = run(tmp_path, stack(store(database={"dsn_from": "acme_dsn"})))
    environment = rendered.container_environment("memorystore-support")
    assert environment["KAOS_MEMORY_EXTERNAL_DSN"] == "postgresql://TAINT-dsn@db/kaos"
    assert not [m for m in rendered.manifests() if m["kind"] == "StatefulSet"]
    assert leaks(rendered.recording) == []


def test_another_dsn_is_another_secret_and_restarts_the_pods(tmp_path: Path):
    def built(dsn: str) -> tuple[dict[str, Any], Any]:
        config = stack(store(database={"dsn_from": "acme_dsn"}))
        rendered = run(tmp_path, config, {"model_api_key": "sk-1", "acme_dsn": dsn})
        (secret,) = [m for m in rendered.manifests() if "dsn" in m.get("stringData", {})]
        return secret, rendered.manifest("Deployment", "memorystore-support")["spec"]["template"]

    (first, old), (_, new), (_, again) = map(
        built, ("postgres://a", "postgres://b", "postgres://a")
    )
    assert first["immutable"] is True
    assert old != new
    assert old == again


def test_a_key_of_the_tenants_is_referred_to(tmp_path: Path):
    endpoint = {"endpoint": "http://x/v1", "secret_ref": {"name": "mine", "key": "token"}}
    rendered = run(tmp_path, stack(model_apis={"main": endpoint}))
    deployment = rendered.manifest("Deployment", "memorystore-support")
    env = deployment["spec"]["template"]["spec"]["containers"][0]["env"]
    for role in ("SUMMARIZATION", "EMBEDDING"):
        key = next(v for v in env if v["name"] == f"KAOS_MEMORY_MODELS_{role}_API_KEY")
        assert key["valueFrom"]["secretKeyRef"] == {"name": "mine", "key": "token"}


def test_what_is_a_stores_own_reaches_it(tmp_path: Path):
    own = store(
        image="registry/canary:2",
        replicas=3,
        rollout_token="7",
        resources={"requests": {"cpu": "1"}},
        server={"drain_seconds": 33},
        container={"env": [{"name": "EXTRA", "value": "1"}]},
    )
    rendered = run(tmp_path, stack(own))
    spec = rendered.manifest("Deployment", "memorystore-support")["spec"]
    (container,) = spec["template"]["spec"]["containers"]
    assert spec["replicas"] == 3
    assert spec["template"]["metadata"]["annotations"] == {"memory.kaos.tools/rollout-token": "7"}
    assert container["image"] == "registry/canary:2"
    assert container["resources"]["requests"]["cpu"] == "1"
    environment = rendered.container_environment("memorystore-support")
    assert environment["EXTRA"] == "1"
    assert from_environment(environment).server.drain_seconds == 33


def test_a_secret_of_the_tenants_is_referred_to(tmp_path: Path):
    database = {"connection_secret": {"name": "mine", "key": "url"}}
    rendered = run(tmp_path, stack(store(database=database)))
    deployment = rendered.manifest("Deployment", "memorystore-support")
    env = deployment["spec"]["template"]["spec"]["containers"][0]["env"]
    dsn = next(v for v in env if v["name"] == "KAOS_MEMORY_EXTERNAL_DSN")
    assert dsn["valueFrom"]["secretKeyRef"] == {"name": "mine", "key": "url"}


def test_stores_of_a_namespace_share_its_database_and_endpoints(tmp_path: Path):
    other = store(name="sales", storage={"external": {"collection": "sales"}})
    rendered = run(tmp_path, stack(store(), other))
    kinds = [m["kind"] for m in rendered.manifests()]
    assert kinds.count("StatefulSet") == 1
    assert kinds.count("Namespace") == 1
    dsns = {
        rendered.container_environment(f"memorystore-{name}")["KAOS_MEMORY_EXTERNAL_DSN"]
        for name in ("support", "sales")
    }
    assert len(dsns) == 1


@pytest.mark.parametrize(
    ("stores", "apis"),
    [
        ([("a-b", "c", "main"), ("a", "b-c", "main")], ["main"]),
        ([("acme", "x", "eu-main"), ("acme-eu", "x", "main")], ["main", "eu-main"]),
        ([("acme", "x", "main"), ("acme-logins", "x", "main")], ["main"]),
        ([("acme", "x", "main"), ("acme", "x-dsn", "main"), ("acme", "dsn", "main")], ["main"]),
        ([("acme", "x", "main"), ("acme-dsn", "x", "main")], ["main"]),
    ],
)
@pytest.mark.parametrize("database", ["dev_postgres", "dsn_from"])
def test_names_that_run_into_each_other_still_tell_the_tenants_apart(
    tmp_path: Path, stores: list[tuple[str, str, str]], apis: list[str], database: str
):
    source = {"dev_postgres": {}} if database == "dev_postgres" else {"dsn_from": "acme_dsn"}
    entries: list[dict[str, Any]] = []
    for index, (namespace, name, api) in enumerate(stores):
        role = {"model_api": api, "model": "m"}
        entries.append(
            store(
                namespace=namespace,
                name=name,
                database=source,
                storage={"external": {"collection": f"c{index}"}},
                models={"summarization": role, "embedding": role},
            )
        )
    endpoint = {"endpoint": "http://models/v1", "api_key_from": "model_api_key"}
    config = stack(*entries, model_apis=dict.fromkeys(apis, endpoint))
    rendered = run(tmp_path, config)
    deployments = [m for m in rendered.manifests() if m["kind"] == "Deployment"]
    assert len(deployments) == len(stores)
    for namespace, name, _ in stores:
        environment = rendered.container_environment(f"memorystore-{name}", namespace)
        assert environment["KAOS_MEMORY_STORE_NAME"] == f"{namespace}/{name}"


def test_the_cluster_is_the_named_one(tmp_path: Path):
    config = stack(kubernetes={"kubeconfig": "~/x", "context": "kind-kaos"})
    resources = run(tmp_path, config).recording.resources
    provider = next(r for r in resources if r.type == "pulumi:providers:kubernetes")
    assert provider.inputs["context"] == "kind-kaos"
    assert provider.inputs["kubeconfig"] == str(Path("~/x").expanduser())


def test_every_database_can_have_another_image(tmp_path: Path):
    rendered = run(tmp_path, stack(postgres_image="local/pg:1"))
    pod = rendered.manifest("StatefulSet", "kaos-memory-pgvector")["spec"]["template"]["spec"]
    assert pod["containers"][0]["image"] == "local/pg:1"


def test_a_database_may_have_an_image_of_its_own(tmp_path: Path):
    database = {"dev_postgres": {"image": "local/own:2"}}
    rendered = run(tmp_path, stack(store(database=database), postgres_image="local/pg:1"))
    pod = rendered.manifest("StatefulSet", "kaos-memory-pgvector")["spec"]["template"]["spec"]
    assert pod["containers"][0]["image"] == "local/own:2"
