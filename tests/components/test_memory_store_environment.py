"""From arguments over the rendered Deployment to the service's settings, and nothing lost."""

import re
from enum import Enum
from typing import Any, cast

import pulumi
import pytest

from kaos_memory.settings import (
    VARIABLES,
    FailureMode,
    Ranking,
    ServiceSettings,
    from_environment,
    to_environment,
    validate,
)
from pulumi_kaos import ArgumentsError

from .samples import DSN, KEY, environment, rendered, store, store_args, unknown_in_preview

HOSTILE = (
    "Say $(HOME) and $$ or ${X}, $ '\"{{}}\\ \t\n\u00e9 \u65e5 \U0001f9e0 $(KAOS_MEMORY_ENGINE)$"
)

RERANK = {"model_api": {"endpoint": "http://models/v1"}, "model": "rerank"}

# A value that is not the default for every setting, given as an argument.
GIVEN: dict[str, tuple[dict[str, Any], Any]] = {
    "engine": ({"engine": "mem0"}, "mem0"),
    "storage.type": ({"storage__type": "external"}, "external"),
    "storage.external.provider": ({"storage__external__provider": "pgvector"}, "pgvector"),
    "storage.external.dsn": (
        {"storage__external__connection_secret_ref": {"name": "other", "key": "dsn"}},
        "postgresql://other",
    ),
    "storage.external.embedding_dims": ({"storage__external__embedding_dims": 384}, 384),
    "storage.external.collection": ({"storage__external__collection": "other_9"}, "other_9"),
    "short_term.token_budget": ({"short_term__token_budget": 64}, 64),
    "short_term.hard_event_cap": ({"short_term__hard_event_cap": 7}, 7),
    "medium_term.enabled": ({"medium_term__enabled": True}, True),
    "medium_term.compaction_trigger": ({"medium_term__compaction_trigger": 3000}, 3000),
    "medium_term.compaction_target": ({"medium_term__compaction_target": 1000}, 1000),
    "medium_term.digest_retention": ({"medium_term__digest_retention": 3}, 3),
    "medium_term.system_prompt": ({"medium_term__system_prompt": HOSTILE}, HOSTILE),
    "long_term.enabled": ({"long_term__enabled": False}, False),
    "long_term.default_top_k": ({"long_term__default_top_k": 17}, 17),
    "long_term.score_threshold": ({"long_term__score_threshold": 0.1 + 0.2}, 0.1 + 0.2),
    "long_term.rerank": ({"long_term__rerank": True}, True),
    "long_term.extraction.concurrency": ({"long_term__extraction__concurrency": 9}, 9),
    "long_term.extraction.max_retries": ({"long_term__extraction__max_retries": 0}, 0),
    "long_term.extraction.system_prompt": (
        {"long_term__extraction__system_prompt": HOSTILE},
        HOSTILE,
    ),
    "long_term.extraction.idle_seconds": ({"long_term__extraction__idle_seconds": 60}, 60),
    "long_term.extraction.daily_token_budget": (
        {"long_term__extraction__daily_token_budget": 10**9},
        10**9,
    ),
    "long_term.exact_search_limit": ({"long_term__exact_search_limit": 500}, 500),
    **{
        f"long_term.ranking.{name}": ({f"long_term__ranking__{name}": 0.75}, 0.75)
        for name in Ranking.model_fields
    },
    "retention.facts_days": ({"retention__facts_days": 365}, 365),
    "retention.digests_days": ({"retention__digests_days": 30}, 30),
    "retention.receipts_days": ({"retention__receipts_days": 3650}, 3650),
    "retention.idempotency_hours": ({"retention__idempotency_hours": 48}, 48),
    "telemetry.metrics_port": ({"telemetry__metrics_port": 9999}, 9999),
    "request_concurrency": ({"request_concurrency": 33}, 33),
    "default_failure_mode": ({"default_failure_mode": "strict"}, "strict"),
    "max_read_scope": ({"max_read_scope": "user"}, "user"),
    "server.drain_seconds": ({"server__drain_seconds": 45}, 45),
    "server.host": (
        {"container__env": [{"name": "KAOS_MEMORY_SERVER_HOST", "value": "::"}]},
        "::",
    ),
    "server.port": (
        {"container__env": [{"name": "KAOS_MEMORY_SERVER_PORT", "value": "9000"}]},
        9000,
    ),
    "auth.mode": ({"auth__mode": "disabled"}, "disabled"),
    "store.name": ({"name": "other"}, "acme/other"),
    **{
        f"models.{role}.{field}": ({**whole, f"models__{role}__{path}": value}, expected)
        for role, whole in [
            ("summarization", {}),
            ("embedding", {}),
            ("rerank", {"models__rerank": RERANK}),
        ]
        for field, path, value, expected in [
            ("base_url", "model_api", {"endpoint": "https://x/openai/v1/"}, "https://x/openai/v1"),
            ("model", "model", "vendor/model:1 $(X)", "vendor/model:1 $(X)"),
            (
                "api_key",
                "model_api",
                {"endpoint": "http://models/v1", "secret_name": "keys", "secret_key": "key"},
                KEY,
            ),
        ]
    },
}
# Local storage is refused in this version.
REFUSED = {"storage.local.provider", "storage.local.path", "storage.local.collection"}


def expected_settings(dotted: str | None = None, value: Any = None) -> ServiceSettings:
    nested: dict[str, Any] = {
        "storage": {"type": "external", "external": {"dsn": DSN}},
        "models": {
            "summarization": {"base_url": "http://models/v1", "model": "chat"},
            "embedding": {"base_url": "http://models/v1", "model": "embed"},
        },
        "server": {"host": "0.0.0.0"},
        "auth": {"mode": "disabled"},
        "store": {"name": "acme/support"},
    }
    if dotted is not None:
        *groups, last = dotted.split(".")
        target = nested
        for group in groups:
            target = target.setdefault(group, {})
        target[last] = value
    if dotted is not None and dotted.startswith("models.rerank."):
        rerank = nested["models"]["rerank"]
        nested["models"]["rerank"] = {"base_url": "http://models/v1", "model": "rerank", **rerank}
    return validate(nested)


def test_every_setting_has_a_case():
    assert {variable.dotted for variable in VARIABLES.values()} == GIVEN.keys() | REFUSED


@pytest.mark.parametrize("dotted", GIVEN)
def test_a_given_field_reaches_the_service(dotted: str):
    changes, expected = GIVEN[dotted]
    settings = from_environment(environment(store_args(**changes)))
    assert settings == expected_settings(dotted, expected)


@pytest.mark.parametrize("dotted", GIVEN)
def test_a_given_field_projects_its_own_variable_only(dotted: str):
    changes, expected = GIVEN[dotted]
    settings = expected_settings(dotted, expected)
    assert environment(store_args(**changes)) == {"MEM0_DIR": "/mem0", **to_environment(settings)}


def test_fields_that_are_not_given_project_nothing():
    assert environment(store_args()) == {
        "MEM0_DIR": "/mem0",
        "KAOS_MEMORY_STORAGE_TYPE": "external",
        "KAOS_MEMORY_EXTERNAL_DSN": DSN,
        "KAOS_MEMORY_MODELS_SUMMARIZATION_BASE_URL": "http://models/v1",
        "KAOS_MEMORY_MODELS_SUMMARIZATION_MODEL": "chat",
        "KAOS_MEMORY_MODELS_EMBEDDING_BASE_URL": "http://models/v1",
        "KAOS_MEMORY_MODELS_EMBEDDING_MODEL": "embed",
        "KAOS_MEMORY_SERVER_HOST": "0.0.0.0",
        "KAOS_MEMORY_AUTH_MODE": "disabled",
        "KAOS_MEMORY_STORE_NAME": "acme/support",
    }


def test_none_counts_as_not_given():
    args = store_args(replicas=None, long_term__score_threshold=None, medium_term=None)
    assert environment(args) == environment(store_args())


def test_whole_numbers_may_arrive_as_floats():
    args = store_args(short_term__token_budget=64.0, storage__external__embedding_dims=384.0)
    settings = from_environment(environment(args))
    assert settings.short_term.token_budget == 64


def test_container_env_comes_last_and_wins():
    override = {"name": "KAOS_MEMORY_SHORT_TERM_TOKEN_BUDGET", "value": "99"}
    extra = {"name": "HTTPS_PROXY", "value": "http://proxy/$(X)"}
    args = store_args(short_term__token_budget=64, container__env=[override, extra])
    found = environment(args)
    assert from_environment(found).short_term.token_budget == 99
    assert list(found)[-2:] == ["KAOS_MEMORY_SHORT_TERM_TOKEN_BUDGET", "HTTPS_PROXY"]
    assert found["HTTPS_PROXY"] == "http://proxy/$(X)"


def test_container_env_may_take_values_from_secrets():
    entry = {
        "name": "KAOS_MEMORY_MODELS_EMBEDDING_BASE_URL",
        "value_from": {"secret_key_ref": {"name": "other", "key": "url"}},
    }
    settings = from_environment(environment(store_args(container__env=[entry])))
    assert settings.models.embedding.base_url == "http://other/v1"


def test_outputs_reach_the_service():
    def program() -> None:
        args = store_args(
            namespace=pulumi.Output.from_input("acme"),
            models__embedding__model_api__endpoint=unknown_in_preview("http://later/v1"),
            container__env=[{"name": "EXTRA", "value": pulumi.Output.from_input("$(X)")}],
        )
        args["storage"]["external"]["connection_secret_ref"]["name"] = pulumi.Output.from_input("s")
        store(args)

    deployment = rendered(program).manifest("Deployment", "memorystore-support")
    env = {e["name"]: e for e in deployment["spec"]["template"]["spec"]["containers"][0]["env"]}
    assert env["KAOS_MEMORY_MODELS_EMBEDDING_BASE_URL"]["value"] == "http://later/v1"
    assert env["KAOS_MEMORY_STORE_NAME"]["value"] == "acme/support"
    assert env["EXTRA"]["value"] == "$$(X)"
    dsn = env["KAOS_MEMORY_EXTERNAL_DSN"]["valueFrom"]["secretKeyRef"]
    assert dsn == {"name": "s", "key": "dsn"}


def test_an_endpoint_that_a_preview_does_not_know_passes_it_and_fails_in_the_update():
    def program() -> None:
        store(
            store_args(models__embedding__model_api__endpoint=unknown_in_preview("ftp://later/v1"))
        )

    rendered(program, preview=True)
    with pytest.raises(ArgumentsError, match=r"models\.embedding\.model_api\.endpoint is 'ftp:"):
        rendered(program)


def test_an_unknown_endpoint_hides_no_fault_of_a_known_one_in_a_preview():
    def program() -> None:
        args = store_args(models__embedding__model_api__endpoint=unknown_in_preview("http://x/v1"))
        args["namespace"] = pulumi.Output.from_input("Not-A-Name")
        store(args)

    with pytest.raises(ArgumentsError, match="namespace is 'Not-A-Name'"):
        rendered(program, preview=True)


def extra(**source: Any) -> dict[str, Any]:
    return {"container__env": [{"name": "FIRST", "value": "1"}, {"name": "X", **source}]}


LATER: dict[str, tuple[Any, dict[str, Any], str]] = {
    "a variable": ("a\0", {"value": ...}, "container.env.1 (X) holds a NUL character"),
    "a Secret's name": (
        "X_",
        {"value_from": {"secret_key_ref": {"name": ..., "key": "k"}}},
        "container.env.1.value_from.secret_key_ref.name is 'X_'",
    ),
    "a Secret's entry": (
        "a b",
        {"value_from": {"secret_key_ref": {"name": "x", "key": ...}}},
        "container.env.1.value_from.secret_key_ref.key is 'a b'",
    ),
    "a number": (5, {"value": ...}, "container.env.1.value must be text, not a number"),
}


def filled(tree: Any, value: Any) -> Any:
    if isinstance(tree, dict):
        return {key: filled(item, value) for key, item in cast("dict[str, Any]", tree).items()}
    return pulumi.Output.from_input(value) if tree is ... else tree


@pytest.mark.parametrize("case", LATER)
@pytest.mark.parametrize("preview", [True, False], ids=["preview", "update"])
def test_outputs_in_lists_are_checked_when_they_are_known(case: str, preview: bool):
    value, source, text = LATER[case]

    def program() -> None:
        store(store_args(**extra(**filled(source, value))))

    with pytest.raises(ArgumentsError, match=re.escape(text)):
        rendered(program, preview=preview)


def test_a_setting_by_variable_must_be_plain():
    entry = {"name": "KAOS_MEMORY_SHORT_TERM_TOKEN_BUDGET", "value": pulumi.Output.from_input("9")}

    def program() -> None:
        store(store_args(container__env=[entry]))

    with pytest.raises(ArgumentsError, match="must be a plain value, not an output; see `value`"):
        rendered(program)


@pytest.mark.parametrize("host", ["::1", "localhost", "10.0.0.1"])
def test_a_pod_listens_on_all_its_addresses(host: str):
    args = store_args(container__env=[{"name": "KAOS_MEMORY_SERVER_HOST", "value": host}])
    with pytest.raises(ArgumentsError, match="the Service could not reach the pod"):
        environment(args)


def test_the_longest_names_reach_the_database_whole():
    name, namespace = "n" * 51, "s" * 63

    def program() -> None:
        store(store_args(name=name, namespace=namespace, container__env=[]))

    deployment = rendered(program).manifest("Deployment", f"memorystore-{name}")
    env = {e["name"]: e for e in deployment["spec"]["template"]["spec"]["containers"][0]["env"]}
    assert env["KAOS_MEMORY_STORE_NAME"]["value"] == f"{namespace}/{name}"


def test_an_empty_text_is_registered_as_kubernetes_keeps_it():
    def program() -> None:
        store(store_args(medium_term__system_prompt=""))

    deployment = rendered(program).manifest("Deployment", "memorystore-support")
    env = {e["name"]: e for e in deployment["spec"]["template"]["spec"]["containers"][0]["env"]}
    name = "KAOS_MEMORY_MEDIUM_TERM_SYSTEM_PROMPT"
    assert env[name] == {"name": name}


class Word(str, Enum):  # noqa: UP042 - a mixed-in text shows as its member's name
    STRICT = "strict"


@pytest.mark.parametrize("mode", [Word.STRICT, FailureMode.STRICT, "strict"])
def test_an_enums_member_counts_as_its_text(mode: str):
    settings = from_environment(environment(store_args(default_failure_mode=mode)))
    assert settings.default_failure_mode is FailureMode.STRICT
