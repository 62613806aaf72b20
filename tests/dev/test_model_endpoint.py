"""The user's endpoint, as the usual variables name it."""

import pytest

from kaos_dev.environment import STACK
from kaos_dev.model_endpoint import ModelEndpointError, model_endpoint
from kaos_dev.model_server import ModelServer
from kaos_dev.render import render

VARIABLES = ("BASE_URL", "API_KEY", "CHAT_MODEL", "EMBEDDING_MODEL")


@pytest.fixture(autouse=True)
def unset(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(f"OPENAI_{name}", raising=False)


def step(_text: str) -> None: ...


@pytest.mark.parametrize("key", [None, ""])
def test_without_a_key_a_stand_in_is_sent_that_a_stack_accepts(
    key: str | None, monkeypatch: pytest.MonkeyPatch
):
    with ModelServer("no-key") as local:
        monkeypatch.setenv("OPENAI_BASE_URL", local.url)
        if key is not None:
            monkeypatch.setenv("OPENAI_API_KEY", key)
        with model_endpoint(step) as found:
            assert (found.api_key, found.embedding_dims, found.bundled) == ("no-key", 1536, False)
            assert "OPENAI_CHAT_MODEL" in str(found)
    rendered = render(STACK, {"model_api_key": found.api_key})
    environment = rendered.container_environment("memorystore-support")
    assert environment["KAOS_MEMORY_MODELS_EMBEDDING_API_KEY"] == "no-key"


def test_the_dimensions_are_those_that_the_model_has(
    models: ModelServer, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("OPENAI_BASE_URL", models.url)
    monkeypatch.setenv("OPENAI_API_KEY", models.api_key)
    monkeypatch.setenv("OPENAI_EMBEDDING_MODEL", "hash-768")
    with model_endpoint(step) as found:
        assert found.embedding_dims == 768


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("127.0.0.1:1", "base_url: must be an http:// or https:// URL"),
        ("http://127.0.0.1:1/v1", "could not be reached"),
    ],
)
def test_an_endpoint_that_does_not_do_is_refused_with_what_to_check(
    url: str, problem: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("OPENAI_BASE_URL", url)
    with pytest.raises(ModelEndpointError, match=f"{problem}.*; check OPENAI_BASE_URL"):  # noqa: SIM117
        with model_endpoint(step):
            pass
