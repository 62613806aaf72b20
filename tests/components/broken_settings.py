"""Arguments of a store that break a rule of its settings, storage or models."""

from typing import Any

SETTINGS: dict[str, tuple[dict[str, Any], str]] = {
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
    "unknown argument": (
        {"short_terms": {}},
        "short_terms is not an argument; did you mean short_t",
    ),
    "unknown field": ({"short_term__budget": 1}, "short_term.budget is not an argument"),
    "a list for a group": ({"short_term": []}, "short_term must be a mapping, not a list"),
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
    "text for a group": ({"auth": "disabled"}, "auth must be a mapping, not text"),
    "text for the external block": (
        {"storage__external": "pgvector"},
        "storage.external must be a mapping, not text",
    ),
}
