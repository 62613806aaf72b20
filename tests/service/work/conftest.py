"""What is done in the background is tested on both storages."""

import pytest


@pytest.fixture(params=["postgres", "local"])
def backend(request: pytest.FixtureRequest) -> str:
    """The storage that has the work."""
    return request.param
