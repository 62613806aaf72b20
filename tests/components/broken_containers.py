"""Arguments of a store that break a rule of its container: image, variables, resources."""

from typing import Any

CONTAINERS: dict[str, tuple[dict[str, Any], str]] = {
    # what is broken: changes of sound arguments, text of the error
    "NUL in a prompt": ({"medium_term__system_prompt": "a\0"}, "holds a NUL character"),
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
            ("TELEMETRY_METRICS_PORT", "decides what is created: must be a plain value"),
            ("STORE_NAME", "guards the schema against other stores"),
        ]
    },
    "another storage by variable": (
        {"container__env": [{"name": "KAOS_MEMORY_STORAGE_TYPE", "value": "local"}]},
        "container.env: storage: type local forbids the external block",
    ),
    "number for a variable": (
        {"container__env": [{"name": "X", "value": 1}]},
        "container.env.0.value must be text, not a number",
    ),
    "nothing for a variable": (
        {"container__env": ["X=1"]},
        "container.env.0 must be a mapping, not text",
    ),
    "half a surrogate": (
        {"container__env": [{"name": "X", "value": "\ud800"}]},
        "container.env.0 (X) holds half of a surrogate pair",
    ),
}
