from collections.abc import Iterator

import pytest
from kaos_dev.model_server import ModelServer


@pytest.fixture(scope="session")
def running_models() -> Iterator[ModelServer]:
    with ModelServer() as server:
        yield server


@pytest.fixture
def models(running_models: ModelServer) -> Iterator[ModelServer]:
    yield running_models
    running_models.reset()
