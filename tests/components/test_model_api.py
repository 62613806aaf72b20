"""ModelAPI: the key's Secret, and what a store gets from it."""

from typing import Any, cast

import pulumi
import pytest

from kaos_dev.recording import Recording, Secret, record
from pulumi_kaos import ArgumentsError, ModelAPI, ModelApiArgs

from .samples import recorded, rendered, store, store_args


def api(**external: Any) -> ModelAPI:
    args = {"namespace": "acme", "mode": "external", "external": external}
    return ModelAPI("models", cast("ModelApiArgs", args))


def test_a_key_goes_into_a_secret_of_its_own():
    recording = recorded(lambda: api(endpoint="https://x/v1", api_key="sk-TAINT"))
    (secret,) = recording.of_type("kubernetes:core/v1:Secret")
    assert secret.inputs["stringData"] == Secret({"api-key": "sk-TAINT"})
    assert secret.inputs["immutable"] is True
    assert "name" not in secret.inputs["metadata"]


def test_another_key_is_another_secret_and_restarts_the_pods():
    def names(key: str) -> Any:
        def program() -> None:
            reference = api(endpoint="https://x/v1", api_key=key).reference
            store(store_args(models__embedding__model_api=reference))

        deployment = rendered(program).manifest("Deployment", "memorystore-support")
        return deployment["spec"]["template"]

    assert names("sk-1") != names("sk-2")
    assert names("sk-1") == names("sk-1")


def test_a_store_gets_endpoint_and_key():
    def program() -> None:
        reference = api(endpoint="https://x/v1", api_key=pulumi.Output.secret("sk-1")).reference
        args = store_args(models__summarization__model_api=reference)
        args["storage"]["external"]["connection_secret_ref"] = {
            "name": reference.get("secret_name"),
            "key": "api-key",
        }
        store(args)

    environment = rendered(program).container_environment("memorystore-support")
    assert environment["KAOS_MEMORY_MODELS_SUMMARIZATION_BASE_URL"] == "https://x/v1"
    assert environment["KAOS_MEMORY_MODELS_SUMMARIZATION_API_KEY"] == "sk-1"
    assert "KAOS_MEMORY_MODELS_EMBEDDING_API_KEY" not in environment


def test_a_store_waits_for_the_secret_of_its_models():
    def program() -> None:
        reference = api(endpoint="https://x/v1", api_key="sk-1").reference
        store(store_args(models__embedding__model_api=reference))

    recording = recorded(program)
    (secret,) = recording.of_type("kubernetes:core/v1:Secret")
    (deployment,) = recording.of_type("kubernetes:apps/v1:Deployment")
    assert secret.urn in deployment.dependencies


def test_a_secret_of_the_users_is_referred_to_and_not_made():
    def program() -> None:
        made = api(endpoint="https://x/v1", secret_ref={"name": "mine", "key": "token"})
        pulumi.export("name", made.secret_name)
        pulumi.export("key", made.secret_key)
        pulumi.export("endpoint", made.endpoint)

    recording = recorded(program)
    assert recording.of_type("kubernetes:core/v1:Secret") == []
    assert recording.exports == {"name": "mine", "key": "token", "endpoint": "https://x/v1"}
    (registered,) = [
        outputs for urn, outputs in recording.outputs.items() if "kaos:index:ModelAPI" in urn
    ]
    assert registered == {"endpoint": "https://x/v1", "secretName": "mine", "secretKey": "token"}


def test_an_endpoint_may_need_no_key():
    made: list[ModelAPI] = []
    recording = recorded(lambda: made.append(api(endpoint="http://local/v1")))
    assert recording.of_type("kubernetes:core/v1:Secret") == []
    assert made[0].secret_name is None
    assert made[0].reference == {"endpoint": "http://local/v1"}


BROKEN: dict[str, tuple[dict[str, Any], str]] = {
    "mode": ({"mode": "magic"}, "mode is 'magic': must be external; choose one"),
    "proxy": ({"mode": "proxy"}, "mode is 'proxy': not available in this version; use external"),
    "hosted": ({"mode": "hosted"}, "mode is 'hosted': not available in this version"),
    "no mode": ({"mode": None}, "mode is required but not given; set it"),
    "no block": ({"external": None}, "external is required with mode external"),
    "no endpoint": ({"external": {}}, "external.endpoint is required but not given"),
    "endpoint": ({"external": {"endpoint": "x"}}, "external.endpoint must be an http:// or https:"),
    "credentials": (
        {"external": {"endpoint": "https://u:hunter2@x/v1"}},
        "external.endpoint must not carry a user or password",
    ),
    "empty key": (
        {"external": {"endpoint": "https://x", "api_key": ""}},
        "external.api_key is empty or holds white space",
    ),
    "key with a line break": (
        {"external": {"endpoint": "https://x", "api_key": "hunter2\n"}},
        "external.api_key is empty or holds white space",
    ),
    "key with NUL": (
        {"external": {"endpoint": "https://x", "api_key": "hunter2\0"}},
        "external.api_key holds characters other than ASCII",
    ),
    "key with half a surrogate": (
        {"external": {"endpoint": "https://x", "api_key": "hunter2\ud800"}},
        "external.api_key holds characters other than ASCII",
    ),
    "long key": (
        {"external": {"endpoint": "https://x", "api_key": "hunter2" * 2000}},
        "external.api_key is longer than 8192 characters",
    ),
    "address": (
        {"external": {"endpoint": "http://x:99999/v1"}},
        "external.endpoint is 'http://x:99999/v1': must name a host",
    ),
    "unreadable address": (
        {"external": {"endpoint": "http://[x/v1"}},
        "external.endpoint is 'http://[x/v1': must name a host",
    ),
    "Secret": (
        {"external": {"endpoint": "https://x", "secret_ref": {"name": "X_", "key": "y"}}},
        "external.secret_ref.name is 'X_': must be a Kubernetes name",
    ),
    "entry": (
        {"external": {"endpoint": "https://x", "secret_ref": {"name": "x", "key": ".."}}},
        "external.secret_ref.key is '..': must name an entry of a Secret",
    ),
    "text for the block": ({"external": "https://x"}, "external must be a mapping, not text"),
    "two keys": (
        {
            "external": {
                "endpoint": "https://x",
                "api_key": "hunter2",
                "secret_ref": {"name": "x", "key": "y"},
            }
        },
        "external.api_key and external.secret_ref exclude each other; remove one",
    ),
    "namespace": ({"namespace": "A"}, "namespace is 'A'"),
}


@pytest.mark.parametrize("case", BROKEN)
@pytest.mark.parametrize("preview", [True, False], ids=["preview", "update"])
def test_nothing_is_registered_when_a_rule_is_broken(case: str, preview: bool):
    changes, text = BROKEN[case]
    sound = {"namespace": "acme", "mode": "external", "external": {"endpoint": "https://x/v1"}}
    recording = Recording()

    def program() -> None:
        ModelAPI("models", cast("ModelApiArgs", sound | changes))

    with pytest.raises(ArgumentsError) as caught:
        record(program, preview=preview, into=recording)
    (problem,) = caught.value.problems
    assert problem.startswith(f"ModelAPI models: {text}")
    assert "hunter2" not in problem
    assert len(recording.resources) == 1


def test_the_resources_name_must_suit_kubernetes():
    with pytest.raises(ArgumentsError, match="the resource's name is 'My_Models'"):
        recorded(
            lambda: ModelAPI(
                "My_Models",
                {"namespace": "acme", "mode": "external", "external": {"endpoint": "https://x"}},
            )
        )


def test_a_bad_key_from_the_configuration_fails_the_preview():
    with pytest.raises(ArgumentsError, match=r"external\.api_key is empty"):
        recorded(lambda: api(endpoint="https://x", api_key=pulumi.Output.secret(" ")), preview=True)
