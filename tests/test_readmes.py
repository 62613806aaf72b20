"""The programs in the READMEs run as they stand."""

import re

import pytest

from kaos_dev.conversations import REPOSITORY
from kaos_dev.recording import record

READMES = ("README.md", "components/README.md")


@pytest.mark.parametrize("name", READMES)
@pytest.mark.parametrize("preview", [True, False])
def test_the_program_of_a_readme_creates_a_store(name: str, preview: bool):
    [program] = re.findall(r"```python\n(.*?)```", (REPOSITORY / name).read_text(), re.DOTALL)
    recording = record(
        lambda: exec(program, {"__name__": "__main__"}),  # noqa: S102 - our own README
        preview=preview,
        project="kaos",
        config={
            "kaos:image": "registry.example.com/kaos-memorystore:0.1.0",
            "kaos:model_api_key": "sk-not-a-secret",
        },
        secrets=["kaos:model_api_key"],
    )
    assert len(recording.of_type("kaos:index:MemoryStore")) == 1
    assert len(recording.of_type("kubernetes:apps/v1:Deployment")) == 1
