"""The renderer: what a kubelet would make of the manifests."""

from pathlib import Path
from typing import Any

import pytest

from kaos_dev.kubelet import MissingObjectError, container_environment, expanded
from kaos_dev.render import RenderError, loopback, render

from .samples import demo, dev, run, stack, store


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("plain", "plain"),
        ("$(A)", "1"),
        ("$$(A)", "$(A)"),
        ("$$$(A)", "$1"),
        ("$(B)", "$(B)"),
        ("$A ${A} $", "$A ${A} $"),
        ("$$$$", "$$"),
        ("$(A", "$(A"),
    ],
)
def test_variables_are_expanded_by_kubernetes_rules(text: str, seen: str):
    assert expanded(text, {"A": "1"}) == seen


def test_hosts_are_replaced_in_urls_only():
    environment = {
        "DSN": "postgresql://u:p@db.acme.svc:5432/kaos?x=db.acme.svc",
        "URL": "http://models/v1",
        "TEXT": "db.acme.svc is a host",
        "OTHER": "https://elsewhere/v1",
    }
    assert loopback(environment, {"db.acme.svc": "127.0.0.1:6000", "models": "127.0.0.1"}) == {
        "DSN": "postgresql://u:p@127.0.0.1:6000/kaos?x=db.acme.svc",
        "URL": "http://127.0.0.1/v1",
        "TEXT": "db.acme.svc is a host",
        "OTHER": "https://elsewhere/v1",
    }


def test_one_host_may_have_two_ports():
    environment = {"A": "http://x:1/v1", "B": "http://x:2/v1"}
    hosts = {"x:1": "127.0.0.1:10", "x:2": "127.0.0.1:20"}
    assert loopback(environment, hosts) == {
        "A": "http://127.0.0.1:10/v1",
        "B": "http://127.0.0.1:20/v1",
    }


def test_a_secret_may_hold_its_entries_in_base64():
    reference = {"secretKeyRef": {"name": "mine", "key": "dsn"}}
    container = {"env": [{"name": "DSN", "valueFrom": reference}, {"name": "NOTHING"}]}
    workload = {
        "metadata": {"namespace": "acme"},
        "spec": {"template": {"spec": {"containers": [container]}}},
    }
    data = {"dsn": "cG9zdGdyZXNxbDovL8OpQGRi"}

    def secret(namespace: str, **entries: dict[str, str]) -> dict[str, Any]:
        return {"kind": "Secret", "metadata": {"name": "mine", "namespace": namespace}, **entries}

    manifests = [secret("globex", stringData={"dsn": "other"}), secret("acme", data=data)]
    found = {"DSN": "postgresql://\u00e9@db", "NOTHING": ""}
    assert container_environment(workload, manifests) == found
    # As the API server merges them.
    both = secret("acme", data=data, stringData={"dsn": "newer"})
    assert container_environment(workload, [both])["DSN"] == "newer"
    with pytest.raises(MissingObjectError, match="acme/mine has no entry dsn"):
        container_environment(workload, [secret("acme", data={})])


def test_two_runs_give_the_same():
    assert demo().manifests() == demo().manifests()


def test_a_name_that_two_namespaces_have_needs_the_namespace():
    rendered = dev()
    with pytest.raises(RenderError, match="2 objects match Deployment"):
        rendered.container_environment("memorystore-support")
    environment = rendered.container_environment("memorystore-support", "acme")
    assert environment["KAOS_MEMORY_STORE_NAME"] == "acme/support"


def test_an_object_that_is_not_there_is_told_with_those_that_are():
    with pytest.raises(RenderError, match=r"0 objects match Deployment .*demo/memorystore-support"):
        demo().container_environment("memorystore-other")


def test_a_secret_that_the_stack_does_not_make_is_missed(tmp_path: Path):
    database = {"connection_secret": {"name": "mine", "key": "url"}}
    rendered = run(tmp_path, stack(store(database=database)))
    with pytest.raises(MissingObjectError, match="no Secret acme/mine"):
        rendered.container_environment("memorystore-support")


def test_an_encrypted_value_must_be_given(tmp_path: Path):
    config = stack() | {"kaos:model_api_key": {"secure": "v1:x:y"}}
    with pytest.raises(RenderError, match="kaos:model_api_key is encrypted; pass the value"):
        run(tmp_path, config, {})
    assert run(tmp_path, config).manifests()


def test_the_programs_own_error_comes_through():
    with pytest.raises(Exception, match="kaos:image is not set"):
        render("stacks/Pulumi.dev.yaml", {"model_api_key": "x", "image": ""})
