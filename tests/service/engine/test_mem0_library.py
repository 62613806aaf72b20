"""Mem0 as a library: late, silent, nobody phoned, and nothing dropped unseen."""

import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kaos_memory.engine import mem0_library
from kaos_memory.engine.mem0_extractor import Mem0Extractor
from kaos_memory.engine.protocols import ModelError

from .scripted import ALICE, ScriptedModels, completion, facts, nobody, turns

TEA = "User likes tea"


async def test_a_fact_that_mem0_drops_is_an_error(
    models: ScriptedModels, extractor: Mem0Extractor, monkeypatch: pytest.MonkeyPatch
):
    def forgetful(memory: Any, *_: object, **__: object) -> list[object]:
        memory.llm.generate_response([{"content": "s"}, {"content": "u"}])
        return []

    monkeypatch.setattr(mem0_library._load().Memory, "_add_to_vector_store", forgetful)
    models.say(facts(TEA))
    with pytest.raises(ModelError, match="dropped a fact"):
        await extractor.extract(ALICE, turns("I like tea"), nobody)


async def test_a_defect_of_mem0_is_an_error_without_content(
    models: ScriptedModels, extractor: Mem0Extractor, monkeypatch: pytest.MonkeyPatch
):
    def broken(*_: object, **__: object) -> list[object]:
        raise KeyError(TEA)

    monkeypatch.setattr(mem0_library._load().Memory, "_add_to_vector_store", broken)
    with pytest.raises(ModelError, match=r"^Mem0 failed \(KeyError\)$"):
        await extractor.extract(ALICE, turns("I like tea"), nobody)
    assert models.requests == []


async def test_mem0_logs_nothing(
    models: ScriptedModels, extractor: Mem0Extractor, caplog: pytest.LogCaptureFixture
):
    models.say(facts(TEA, TEA), completion("prose"))
    with caplog.at_level(logging.DEBUG):
        await extractor.extract(ALICE, turns("I like tea"), nobody)
        with pytest.raises(ModelError):
            await extractor.extract(ALICE, turns("I like tea"), nobody)
    assert [record.name for record in caplog.records if record.name.startswith("mem0")] == []


_PROBE = """
import asyncio, os, sys, threading
from pathlib import Path
from kaos_memory.engine.mem0_extractor import Mem0Extractor
assert "mem0" not in sys.modules and "openai" not in sys.modules, "loaded too early"
from kaos_memory.engine import mem0_library
mem0_library._load()
assert os.environ["MEM0_TELEMETRY"] == "False"
import mem0.memory.telemetry as telemetry
assert telemetry.client_telemetry.posthog is None and not telemetry.MEM0_TELEMETRY
assert threading.active_count() == 1, threading.enumerate()
assert "openai" not in sys.modules and "spacy" not in sys.modules

class Tripwire:
    def __getattr__(self, name):
        raise SystemExit("spaCy is used")

sys.modules["spacy"] = Tripwire()
from mem0.utils.entity_extraction import extract_entities_batch
from mem0.utils.lemmatization import lemmatize_for_bm25
assert extract_entities_batch(["Alice met Bob"]) == [[]]
assert lemmatize_for_bm25("Alice met Bob") == "Alice met Bob"
print(os.environ["MEM0_DIR"])
"""


def _probe(**environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", _PROBE],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def test_mem0_is_loaded_late_phones_nobody_and_leaves_the_home_folder_alone(tmp_path: Path):
    home = tmp_path / "home"
    home.mkdir()
    done = _probe(HOME=str(home), MEM0_DIR="", MEM0_TELEMETRY="True", TMPDIR=str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert list(home.iterdir()) == []
    folder = Path(done.stdout.strip())
    assert folder.parent == tmp_path
    assert not folder.exists()  # removed at exit


def test_a_folder_that_cannot_be_made_is_said_with_its_remedy(tmp_path: Path):
    (tmp_path / "file").touch()
    done = _probe(MEM0_DIR=str(tmp_path / "file" / "mem0"))
    assert "ModelError: Mem0 cannot be loaded (NotADirectoryError); make MEM0_DIR" in done.stderr
