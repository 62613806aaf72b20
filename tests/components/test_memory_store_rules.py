"""Every broken rule is told before anything is registered, in preview as in update."""

from typing import Any, cast

import pulumi
import pytest

from kaos_dev.recording import Recording, record
from pulumi_kaos import ArgumentsError, memory_store_problems

from .samples import store, store_args

BROKEN: dict[str, tuple[dict[str, Any], str]] = {
    # what is broken: changes of sound arguments, text of the error
    "engine": ({"engine": "zep"}, "engine is 'zep': Input should be 'mem0'"),
    "local storage": (
        {"storage": {"type": "local"}},
        "storage.type is 'local': local storage is not available in this version; use external",
    ),
    "local storage with replicas": (
        {"storage": {"type": "local"}, "replicas": 2},
        "replicas is 2: must be 1 with local storage; leave it out",
    ),
    "storage type": (
        {"storage__type": "cloud"},
        "storage.type is 'cloud': must be external; choose one",
    ),
    "no storage type": ({"storage": {}}, "storage.type is required but not given; set it"),
    "no external block": (
        {"storage": {"type": "external"}},
        "storage.external is required with type external",
    ),
    "both blocks": (
        {"storage__local": {"provider": "chroma"}},
        "storage.local goes with type local only; remove it",
    ),
    "no connection": (
        {"storage": {"type": "external", "external": {}}},
        "storage.external.connection_secret_ref is required but not given; set it",
    ),
    "no key of the connection": (
        {"storage__external__connection_secret_ref": {"name": "x"}},
        "storage.external.connection_secret_ref.key is required but not given",
    ),
    "name of the connection": (
        {"storage__external__connection_secret_ref": {"name": "X_", "key": "dsn"}},
        "storage.external.connection_secret_ref.name is 'X_': must be a Kubernetes name",
    ),
    "a dsn as argument": (
        {"storage__external__dsn": "postgresql://u:hunter2@h/d"},
        "storage.external.dsn is not an argument",
    ),
    "provider": (
        {"storage__external__provider": "qdrant"},
        "storage.external.provider is 'qdrant'",
    ),
    "no dims": ({"storage__external__embedding_dims": 0}, "storage.external.embedding_dims is 0"),
    "many dims": ({"storage__external__embedding_dims": 4001}, "less than or equal to 4000"),
    "collection": (
        {"storage__external__collection": "A-b"},
        "storage.external.collection is 'A-b'",
    ),
    "no replicas": ({"replicas": 0}, "replicas is 0: must be 1 to 100"),
    "half a replica": ({"replicas": 1.5}, "replicas is 1.5: must be a whole number"),
    "no models": ({"models": None}, "models is required but not given"),
    "no embedding": (
        {"models__embedding": None},
        "models.embedding is required but not given; set it",
    ),
    "no endpoint": (
        {"models__embedding": {"model": "x"}},
        "models.embedding.model_api is required but not given",
    ),
    "no model": (
        {"models__summarization": {"model_api": {"endpoint": "http://x/v1"}}},
        "models.summarization.model is required but not given",
    ),
    "endpoint": (
        {"models__embedding__model_api": {"endpoint": "models:8000"}},
        "models.embedding.model_api.endpoint is 'models:8000': must be an http:// or https:// URL",
    ),
    "credentials in an endpoint": (
        {"models__embedding__model_api": {"endpoint": "http://u:p@models/v1"}},
        "models.embedding.model_api.endpoint must not carry a user or password",
    ),
    "half a key": (
        {"models__embedding__model_api": {"endpoint": "http://x/v1", "secret_name": "x"}},
        "models.embedding.model_api needs secret_name and secret_key together",
    ),
    "budget": ({"short_term__token_budget": 0}, "short_term.token_budget is 0"),
    "event cap": ({"short_term__hard_event_cap": 0}, "short_term.hard_event_cap is 0"),
    "negative trigger": (
        {"medium_term__compaction_trigger": -1},
        "medium_term.compaction_trigger is -1",
    ),
    "trigger above budget": (
        {"medium_term__compaction_trigger": 4097},
        "0 < target < trigger <= short_term.token_budget, but are target 2048, trigger 4097",
    ),
    "target at trigger": (
        {"medium_term__compaction_trigger": 2048},
        "target 2048, trigger 2048, budget 4096",
    ),
    "derived target of nothing": (
        {"short_term__token_budget": 1},
        "target 0, trigger 1, budget 1; lower the marks or raise the budget",
    ),
    "retention": ({"medium_term__digest_retention": 0}, "medium_term.digest_retention is 0"),
    "prompt": ({"medium_term__system_prompt": 1}, "medium_term.system_prompt must be text"),
    "NUL in a prompt": ({"medium_term__system_prompt": "a\0"}, "holds a NUL character"),
    "top k": ({"long_term__default_top_k": 0}, "long_term.default_top_k is 0"),
    "low threshold": ({"long_term__score_threshold": -0.1}, "long_term.score_threshold is -0.1"),
    "high threshold": ({"long_term__score_threshold": 1.1}, "long_term.score_threshold is 1.1"),
    "threshold": ({"long_term__score_threshold": float("nan")}, "long_term.score_threshold is nan"),
    "enabled": ({"long_term__enabled": "yes"}, "long_term.enabled must be true or false, not text"),
    "extraction": (
        {"long_term__extraction__concurrency": 0},
        "long_term.extraction.concurrency is 0",
    ),
    "retries": ({"long_term__extraction__max_retries": -1}, "extraction.max_retries is -1"),
    "concurrency": ({"request_concurrency": 0}, "request_concurrency is 0"),
    "a flag as number": (
        {"request_concurrency": True},
        "request_concurrency must be a whole number",
    ),
    "failure mode": ({"default_failure_mode": "hard"}, "default_failure_mode is 'hard'"),
    "scope": ({"max_read_scope": "store"}, "max_read_scope is 'store'"),
    "drain": ({"server__drain_seconds": 0}, "server.drain_seconds is 0"),
    "a port of one's own": ({"server__port": 1}, "server.port is not an argument"),
    "no auth": ({"auth": None}, "auth.mode is required: this version verifies no callers"),
    "auth": ({"auth__mode": "oidc"}, "auth.mode is 'oidc': Input should be 'disabled'"),
    "name": ({"name": "Support"}, "name is 'Support': must be lower-case letters"),
    "long name": ({"name": "x" * 52}, "51 characters at most (memorystore-<name> is a host label"),
    "namespace": ({"namespace": "a.b"}, "namespace is 'a.b'"),
    "image without a version": ({"image": "registry:5000/x"}, "image is 'registry:5000/x'"),
    "latest image": ({"image": "x:latest"}, "a tag other than 'latest'"),
    "quantity": (
        {"resources": {"limits": {"memory": "1 GB"}}},
        "resources.limits.memory is '1 GB'",
    ),
    "request above limit": (
        {"resources": {"requests": {"memory": "1Gi"}}},
        "resources.requests.memory is 1Gi: must not exceed the limit 768Mi",
    ),
    "unknown argument": (
        {"short_terms": {}},
        "short_terms is not an argument; did you mean short_t",
    ),
    "unknown field": ({"short_term__budget": 1}, "short_term.budget is not an argument"),
    "a list for a group": ({"short_term": []}, "short_term must be a mapping, not a list"),
    "unknown variable": (
        {"container__env": [{"name": "KAOS_MEMORY_ENGIN", "value": "mem0"}]},
        "container.env: KAOS_MEMORY_ENGIN is not a setting of this service; did you mean",
    ),
    "value of a variable": (
        {"container__env": [{"name": "KAOS_MEMORY_SHORT_TERM_TOKEN_BUDGET", "value": "0"}]},
        "container.env: short_term.token_budget is '0'",
    ),
    "variables against arguments": (
        {
            "short_term__token_budget": 4096,
            "medium_term__compaction_target": 1000,
            "container__env": [{"name": "KAOS_MEMORY_SHORT_TERM_TOKEN_BUDGET", "value": "999"}],
        },
        "container.env: medium_term.compaction_target and medium_term.compaction_trigger must",
    ),
    "secret as a plain variable": (
        {
            "container__env": [
                {"name": "KAOS_MEMORY_EXTERNAL_DSN", "value": "postgresql://u:hunter2@h"}
            ]
        },
        "container.env.0 (KAOS_MEMORY_EXTERNAL_DSN) holds a secret; give it by value_from",
    ),
    "variable without value": (
        {"container__env": [{"name": "X"}]},
        "container.env.0 (X) needs either value or value_from; give one",
    ),
    "variable twice": (
        {"container__env": [{"name": "X", "value": "1"}, {"name": "X", "value": "2"}]},
        "container.env.1.name is X, which an earlier entry sets; remove one",
    ),
    "variable's name": (
        {"container__env": [{"name": "A-B", "value": "1"}]},
        "container.env.0.name is 'A-B': must be letters",
    ),
    "unreachable host": (
        {"container__env": [{"name": "KAOS_MEMORY_SERVER_HOST", "value": "127.0.0.1"}]},
        "KAOS_MEMORY_SERVER_HOST is '127.0.0.1': the Service could not reach the pod",
    ),
    "many replicas": ({"replicas": 101}, "replicas is 101: must be 1 to 100"),
    "unreadable host of an endpoint": (
        {"models__embedding__model_api": {"endpoint": "http://[x/v1"}},
        "models.embedding.model_api.endpoint is 'http://[x/v1': must name a host",
    ),
    "no host of an endpoint": (
        {"models__embedding__model_api": {"endpoint": "http://:80/v1"}},
        "models.embedding.model_api.endpoint is 'http://:80/v1': must name a host",
    ),
    "host of an endpoint": (
        {"models__embedding__model_api": {"endpoint": "http://\u2100.com/v1"}},
        "must name a host and, if any, a port of 1 to 65535",
    ),
    "port of an endpoint": (
        {"models__embedding__model_api": {"endpoint": "http://x:65536/v1"}},
        "must name a host and, if any, a port of 1 to 65535",
    ),
    "port 0 of an endpoint": (
        {"models__embedding__model_api": {"endpoint": "http://x:0/v1"}},
        "must name a host and, if any, a port of 1 to 65535",
    ),
    "words for a port": (
        {"models__embedding__model_api": {"endpoint": "http://x:http/v1"}},
        "must name a host and, if any, a port of 1 to 65535",
    ),
    "credentials in an endpoint by variable": (
        {
            "container__env": [
                {"name": "KAOS_MEMORY_MODELS_EMBEDDING_BASE_URL", "value": "http://u:hunter2@x/v1"}
            ]
        },
        "container.env.0 (KAOS_MEMORY_MODELS_EMBEDDING_BASE_URL) must not carry a user",
    ),
    "number as resource": (
        {"resources": {"requests": {1: "5"}}},
        "resources.requests.1 has a key that is not text; quote it",
    ),
    "number as resource and quantity": (
        {"resources": {"requests": {1: 5}}},
        "resources.requests.1 has a key that is not text; quote it",
    ),
    "misspelt resource": (
        {"resources": {"limits": {"memroy": "1Gi"}}},
        "resources.limits.memroy is not a resource of these pods; use cpu, memory, ephemeral-sto",
    ),
    "upper case in an image": ({"image": "registry/Kaos:1"}, "image is 'registry/Kaos:1'"),
    "long image": ({"image": "x" * 256 + ":1"}, "must be an image reference"),
    "token with NUL": ({"rollout_token": "a\0b"}, "rollout_token is 'a\\x00b': must be printable"),
    "token with half a surrogate": ({"rollout_token": "\ud800"}, "must be printable characters"),
    "long token": ({"rollout_token": "x" * 257}, "must be printable characters, 256 at most"),
    "entry called ..": (
        {"storage__external__connection_secret_ref": {"name": "x", "key": "..data"}},
        "storage.external.connection_secret_ref.key is '..data': must name an entry of a Secret",
    ),
    "entry called .": (
        {"storage__external__connection_secret_ref": {"name": "x", "key": "."}},
        "storage.external.connection_secret_ref.key is '.': must name an entry of a Secret",
    ),
    "Secret of an endpoint": (
        {
            "models__embedding__model_api": {
                "endpoint": "http://x/v1",
                "secret_name": "X_",
                "secret_key": "k",
            }
        },
        "models.embedding.model_api.secret_name is 'X_': must be a Kubernetes name",
    ),
    "entry of an endpoint's Secret": (
        {
            "models__embedding__model_api": {
                "endpoint": "http://x/v1",
                "secret_name": "x",
                "secret_key": "a b",
            }
        },
        "models.embedding.model_api.secret_key is 'a b': must name an entry of a Secret",
    ),
    "long variable": (
        {"container__env": [{"name": "X", "value": "x" * 131_070}]},
        "container.env.0 (X) takes 131073 bytes as a variable",
    ),
    "long prompt in bytes": (
        {"medium_term__system_prompt": "\U0001f9e0" * 32_768},
        "KAOS_MEMORY_MEDIUM_TERM_SYSTEM_PROMPT takes 131111 bytes as a variable",
    ),
    "many long variables": (
        {"container__env": [{"name": f"X{i}", "value": "x" * 110_000} for i in range(5)]},
        "bytes together: must be 524288 at most; shorten them",
    ),
    "value and reference": (
        {
            "container__env": [
                {
                    "name": "X",
                    "value": "1",
                    "value_from": {"secret_key_ref": {"name": "x", "key": "y"}},
                }
            ]
        },
        "container.env.0 (X) needs either value or value_from; give one",
    ),
    "Secret of a variable": (
        {
            "container__env": [
                {"name": "X", "value_from": {"secret_key_ref": {"name": "X_", "key": "y"}}}
            ]
        },
        "container.env.0.value_from.secret_key_ref.name is 'X_'",
    ),
    "unknown variable by reference": (
        {
            "container__env": [
                {
                    "name": "KAOS_MEMORY_ENGIN",
                    "value_from": {"secret_key_ref": {"name": "x", "key": "y"}},
                }
            ]
        },
        "container.env: KAOS_MEMORY_ENGIN is not a setting of this service; did you mean",
    ),
    "the store's name": (
        {"container__env": [{"name": "KAOS_MEMORY_STORE_NAME", "value": "acme/other"}]},
        "container.env.0 (KAOS_MEMORY_STORE_NAME) guards the schema against other stores",
    ),
    **{
        f"{name} by reference": (
            {
                "container__env": [
                    {
                        "name": f"KAOS_MEMORY_{name}",
                        "value_from": {"secret_key_ref": {"name": "x", "key": "y"}},
                    }
                ]
            },
            f"container.env.0 (KAOS_MEMORY_{name}) {rule}",
        )
        for name, rule in [
            ("STORAGE_TYPE", "decides what is created: must be a plain value"),
            ("EXTERNAL_COLLECTION", "decides what is created: must be a plain value"),
            ("SERVER_HOST", "decides what is created: must be a plain value"),
            ("SERVER_PORT", "decides what is created: must be a plain value"),
            ("SERVER_DRAIN_SECONDS", "decides what is created: must be a plain value"),
            ("STORE_NAME", "guards the schema against other stores"),
        ]
    },
    "another storage by variable": (
        {"container__env": [{"name": "KAOS_MEMORY_STORAGE_TYPE", "value": "local"}]},
        "container.env: storage: type local forbids the external block",
    ),
    "text for a group": ({"auth": "disabled"}, "auth must be a mapping, not text"),
    "number for a variable": (
        {"container__env": [{"name": "X", "value": 1}]},
        "container.env.0.value must be text, not a number",
    ),
    "nothing for a variable": (
        {"container__env": ["X=1"]},
        "container.env.0 must be a mapping, not text",
    ),
    "text for the external block": (
        {"storage__external": "pgvector"},
        "storage.external must be a mapping, not text",
    ),
    "half a surrogate": (
        {"container__env": [{"name": "X", "value": "\ud800"}]},
        "container.env.0 (X) holds half of a surrogate pair",
    ),
}


@pytest.mark.parametrize("case", BROKEN)
@pytest.mark.parametrize("preview", [True, False], ids=["preview", "update"])
def test_nothing_is_registered_when_a_rule_is_broken(case: str, preview: bool):
    changes, text = BROKEN[case]
    recording = Recording()

    def program() -> None:
        store(store_args(**changes))

    with pytest.raises(ArgumentsError) as caught:
        record(program, preview=preview, into=recording)
    assert text in str(caught.value)
    assert [resource.type for resource in recording.resources] == ["pulumi:pulumi:Stack"]


@pytest.mark.parametrize("case", BROKEN)
def test_every_problem_names_the_resource_and_no_secret(case: str):
    problems = memory_store_problems("support", store_args(**BROKEN[case][0]))
    assert len(problems) >= 1
    for problem in problems:
        assert problem.startswith("MemoryStore support: ")
        assert "hunter2" not in problem
        assert "placeholder" not in problem


@pytest.mark.parametrize("case", sorted(BROKEN.keys() - {"local storage with replicas"}))
def test_one_fault_is_told_once(case: str):
    assert len(memory_store_problems("support", store_args(**BROKEN[case][0]))) == 1


def test_all_problems_are_told_at_once():
    problems = memory_store_problems(
        "support",
        store_args(
            name="Upper",
            replicas=0,
            max_read_scope="store",
            medium_term__compaction_trigger=5000,
            storage__external__embedding_dims=9000,
            auth=None,
            engin="mem0",
            container__env=[{"name": "KAOS_MEMORY_ENGIN", "value": "x"}],
        ),
    )
    assert len(problems) == 8


def test_a_number_must_be_plain():
    args = store_args(replicas=pulumi.Output.from_input(2))
    (problem,) = memory_store_problems("support", args)
    assert problem == (
        "MemoryStore support: replicas must be a plain value, not an output: it decides what is "
        "created; take it from the configuration"
    )


@pytest.mark.parametrize(
    "image",
    [
        "kaos-memorystore:0.1.0",
        "localhost:5000/kaos/memorystore:dev",
        "ghcr.io/x/y@sha256:" + "a" * 64,
        "ghcr.io/x/y:1@sha256:" + "a" * 64,
    ],
)
def test_pinned_images_are_taken(image: str):
    assert memory_store_problems("support", store_args(image=image)) == []


def test_the_longest_name_is_taken():
    assert memory_store_problems("support", store_args(name="x" * 51)) == []


@pytest.mark.parametrize(
    "changes",
    [
        {"replicas": 100},
        {"rollout_token": "x" * 256},
        {"rollout_token": ""},
        {"container__env": [{"name": "X", "value": "x" * 131_069}]},
        {"models__embedding__model_api": {"endpoint": "http://[::1]:65535/v1"}},
        {"resources": {"limits": {"ephemeral-storage": "1Gi", "cpu": "2"}}},
        {"storage__external__connection_secret_ref": {"name": "x", "key": ".env"}},
    ],
)
def test_what_is_just_allowed_is_taken(changes: dict[str, Any]):
    assert memory_store_problems("support", store_args(**changes)) == []


@pytest.mark.parametrize(
    ("request_", "limit", "taken"),
    [
        ("1000m", "1", True),
        ("1001m", "1", False),
        ("1Ki", "1024", True),
        ("1025", "1Ki", False),
        ("1.5Gi", "1536Mi", True),
        ("1537Mi", "1.5Gi", False),
    ],
)
def test_quantities_are_compared_as_kubernetes_reads_them(request_: str, limit: str, taken: bool):
    resources = {"requests": {"cpu": request_}, "limits": {"cpu": limit}}
    problems = memory_store_problems("support", store_args(resources=resources))
    assert (problems == []) is taken


def test_arguments_of_no_kind_are_one_fault():
    (problem,) = memory_store_problems("support", cast("dict[str, Any]", "x"))
    assert problem == "MemoryStore support: args must be a mapping, not text"
