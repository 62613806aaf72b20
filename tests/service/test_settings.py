"""The settings model: defaults, bounds, names, and what its errors say."""

import pytest

from kaos_memory.settings import (
    VARIABLES,
    FailureMode,
    MaxReadScope,
    ServiceSettings,
    SettingsError,
    from_environment,
    to_environment,
    validate,
)

REQUIRED = {
    "KAOS_MEMORY_STORAGE_TYPE": "external",
    "KAOS_MEMORY_EXTERNAL_DSN": "postgresql://kaos:hunter2@db/kaos",
    "KAOS_MEMORY_MODELS_SUMMARIZATION_BASE_URL": "http://models/v1",
    "KAOS_MEMORY_MODELS_SUMMARIZATION_MODEL": "gpt-4o-mini",
    "KAOS_MEMORY_MODELS_EMBEDDING_BASE_URL": "http://models/v1",
    "KAOS_MEMORY_MODELS_EMBEDDING_MODEL": "text-embedding-3-small",
}


def problems(**changes: str) -> str:
    with pytest.raises(SettingsError) as caught:
        from_environment(REQUIRED | {f"KAOS_MEMORY_{k}": v for k, v in changes.items()})
    return str(caught.value)


def test_the_defaults_are_the_seeds():
    settings = from_environment(REQUIRED)
    assert settings.engine == "mem0"
    assert settings.storage.external is not None
    assert settings.storage.external.provider == "pgvector"
    assert settings.storage.external.embedding_dims == 1536
    assert settings.storage.external.collection == "kaos_memory"
    assert settings.short_term.token_budget == 4096
    assert settings.short_term.hard_event_cap == 2000
    assert settings.medium_term.enabled is False
    assert settings.compaction_trigger == 4096
    assert settings.compaction_target == 2048
    assert settings.medium_term.digest_retention == 20
    assert settings.medium_term.system_prompt == ""
    assert settings.long_term.enabled is True
    assert settings.long_term.default_top_k == 10
    assert settings.long_term.score_threshold is None
    assert settings.long_term.rerank is False
    assert settings.long_term.extraction.concurrency == 4
    assert settings.long_term.extraction.max_retries == 2
    assert settings.request_concurrency == 8
    assert settings.default_failure_mode is FailureMode.SOFT
    assert settings.max_read_scope is MaxReadScope.AGENT


def test_the_seeds_names_of_the_dsn_and_the_dimensions_are_kept():
    assert {"KAOS_MEMORY_EXTERNAL_DSN", "KAOS_MEMORY_EXTERNAL_DIMS"} <= VARIABLES.keys()


def test_what_was_given_is_projected_and_read_back_equal():
    environment = REQUIRED | {
        "KAOS_MEMORY_LONG_TERM_RERANK": "true",
        "KAOS_MEMORY_LONG_TERM_SCORE_THRESHOLD": "0.4",
        "KAOS_MEMORY_DEFAULT_FAILURE_MODE": "strict",
        "KAOS_MEMORY_SHORT_TERM_TOKEN_BUDGET": "64",
    }
    settings = from_environment(environment)
    assert to_environment(settings) == environment
    assert from_environment(to_environment(settings)) == settings


@pytest.mark.parametrize(
    ("trigger", "target", "budget", "valid"),
    [
        ("0", "0", "64", True),
        ("64", "63", "64", True),
        ("64", "64", "64", False),
        ("65", "32", "64", False),
        ("32", "0", "64", False),  # the derived target is 32
        ("0", "0", "1", False),  # the derived target is 0
        ("0", "64", "64", False),
    ],
)
def test_the_marks_hold_their_order_after_derivation(
    trigger: str, target: str, budget: str, valid: bool
):
    changes = {
        "MEDIUM_TERM_COMPACTION_TRIGGER": trigger,
        "MEDIUM_TERM_COMPACTION_TARGET": target,
        "SHORT_TERM_TOKEN_BUDGET": budget,
    }
    if valid:
        from_environment(REQUIRED | {f"KAOS_MEMORY_{k}": v for k, v in changes.items()})
    else:
        assert "0 < target < trigger <= short_term.token_budget" in problems(**changes)


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("SHORT_TERM_TOKEN_BUDGET", "0", "short_term.token_budget is '0': "),
        ("SHORT_TERM_TOKEN_BUDGET", "many", "short_term.token_budget is 'many': "),
        ("SHORT_TERM_HARD_EVENT_CAP", "0", "leave it out for the default 2000"),
        ("MEDIUM_TERM_DIGEST_RETENTION", "0", "medium_term.digest_retention is '0'"),
        ("LONG_TERM_DEFAULT_TOP_K", "101", "long_term.default_top_k is '101'"),
        ("LONG_TERM_SCORE_THRESHOLD", "1.1", "long_term.score_threshold is '1.1'"),
        ("LONG_TERM_SCORE_THRESHOLD", "nan", "long_term.score_threshold is 'nan'"),
        ("LONG_TERM_EXTRACTION_CONCURRENCY", "0", "long_term.extraction.concurrency is '0'"),
        ("LONG_TERM_EXTRACTION_MAX_RETRIES", "-1", "long_term.extraction.max_retries is '-1'"),
        ("REQUEST_CONCURRENCY", "0", "request_concurrency is '0'"),
        ("DEFAULT_FAILURE_MODE", "loud", "default_failure_mode is 'loud'"),
        ("MAX_READ_SCOPE", "store", "max_read_scope is 'store'"),
        ("ENGINE", "zep", "engine is 'zep'"),
        ("STORAGE_TYPE", "cloud", "storage.type is 'cloud'"),
        ("EXTERNAL_PROVIDER", "qdrant", "storage.external.provider is 'qdrant'"),
        ("EXTERNAL_DIMS", "4001", "storage.external.embedding_dims is '4001'"),
        ("EXTERNAL_COLLECTION", "Robert'); DROP", "storage.external.collection is "),
        ("EXTERNAL_COLLECTION", "pg_catalog", "must not be a schema that PostgreSQL has already"),
        ("EXTERNAL_COLLECTION", "public", "must not be a schema that PostgreSQL has already"),
        ("EXTERNAL_DSN", "host=db user=kaos", "storage.external.dsn is a secret: must be a URL"),
        ("MODELS_EMBEDDING_MODEL", "", "models.embedding.model is ''"),
        ("MODELS_EMBEDDING_BASE_URL", "models:80", "must be an http:// or https:// URL"),
        ("MODELS_EMBEDDING_BASE_URL", "http://models:99999/v1", "with a valid host and port"),
        ("MODELS_EMBEDDING_BASE_URL", "http://[x/v1", "with a valid host and port"),
        ("MODELS_EMBEDDING_BASE_URL", "http://℀.com/v1", "with a valid host and port"),
        ("MODELS_EMBEDDING_BASE_URL", "http://u:hunter2@h/v1", "is 'http://...@h/v1'"),
        ("SERVER_PORT", "65536", "server.port is '65536'"),
        ("LOCAL_PATH", "/data", "type external forbids the local block"),
        ("SHORTTERM_TOKEN_BUDGET", "64", "did you mean KAOS_MEMORY_SHORT_TERM_TOKEN_BUDGET?"),
    ],
)
def test_a_broken_rule_is_named_with_field_value_and_remedy(name: str, value: str, expected: str):
    assert expected in problems(**{name: value})


def test_every_problem_is_reported_at_once():
    text = problems(SHORT_TERM_TOKEN_BUDGET="0", MAX_READ_SCOPE="all", TYPO="1")
    assert len(text.splitlines()) == 3


def test_what_is_required_is_named_with_its_variables():
    with pytest.raises(SettingsError, match="KAOS_MEMORY_MODELS_EMBEDDING_MODEL"):
        from_environment({"KAOS_MEMORY_MODELS_EMBEDDING_BASE_URL": "http://models/v1"})


def test_without_any_variable_a_laptop_is_served():
    settings = from_environment({})
    assert settings.storage.type == "local"
    assert settings.models.embedding.base_url == "http://127.0.0.1:11434/v1"


@pytest.mark.parametrize("role", ["summarization", "embedding"])
def test_shared_storage_wants_its_models_named(role: str):
    without = {k: v for k, v in REQUIRED.items() if f"_{role.upper()}_" not in k}
    with pytest.raises(SettingsError, match=f"models.{role} is required"):
        from_environment(without)


def test_two_listeners_cannot_share_a_port():
    with pytest.raises(SettingsError, match="both 8080"):
        from_environment(REQUIRED | {"KAOS_MEMORY_TELEMETRY_METRICS_PORT": "8080"})


def test_no_secret_shows_in_errors_or_representations():
    environment = REQUIRED | {"KAOS_MEMORY_MODELS_EMBEDDING_API_KEY": "sk-hunter2"}
    assert "hunter2" not in repr(from_environment(environment))
    with pytest.raises(SettingsError) as caught:
        validate({"storage": {"type": "external", "external": {"dsn": 5, "hunter": "hunter2"}}})
    assert "hunter2" not in str(caught.value)
    assert "storage.external.dsn is a secret" in str(caught.value)


def test_variables_of_service_links_are_ignored():
    links = {
        "KAOS_MEMORY_PORT": "tcp://10.0.0.1:8080",
        "KAOS_MEMORY_SERVICE_HOST": "10.0.0.1",
        "KAOS_MEMORY_SERVICE_PORT_HTTP": "8080",
        "KAOS_MEMORY_PORT_8080_TCP_ADDR": "10.0.0.1",
        "KAOS_MEMORY_PGVECTOR_SERVICE_HOST": "10.0.0.2",
        "KAOS_MEMORY_SERVER_PORT": "tcp://10.0.0.3:80",
    }
    assert from_environment(REQUIRED | links) == from_environment(REQUIRED)


def test_an_open_port_without_verification_must_be_asked_for():
    assert "auth.mode must be given" in problems(SERVER_HOST="0.0.0.0")
    opened = REQUIRED | {"KAOS_MEMORY_SERVER_HOST": "0.0.0.0", "KAOS_MEMORY_AUTH_MODE": "disabled"}
    assert from_environment(opened).server.host == "0.0.0.0"


def test_booleans_are_not_numbers_but_integral_floats_are():
    given = {
        "storage": {"type": "external", "external": {"dsn": "postgresql://db/kaos"}},
        "models": {
            role: {"base_url": "http://models/v1", "model": "m"}
            for role in ("summarization", "embedding")
        },
    }
    settings = validate(given | {"short_term": {"token_budget": 64.0}})
    assert settings.short_term.token_budget == 64
    with pytest.raises(SettingsError, match="must be a number, not a boolean"):
        validate(given | {"short_term": {"token_budget": True}})


def test_settings_do_not_change():
    settings: ServiceSettings = from_environment(REQUIRED)
    with pytest.raises(ValueError, match="frozen"):
        settings.engine = "mem0"
