"""What the help texts and the documents say about commands is there."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main

from kaos_dev.conversations import REPOSITORY
from kaos_memory.commands.app import app

DOCUMENTS = [
    *(REPOSITORY / "docs" / "runbooks").glob("*.md"),
    REPOSITORY / "service" / "README.md",
]
_MENTIONED = re.compile(r"\bkaos-memory((?: [a-z]+(?![a-z.]))*)([^`\n|#]*)")


def commands(group: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Every command and group by its name, the nameless one first."""
    yield name, group
    for word, command in getattr(group, "commands", {}).items():
        yield from commands(command, f"{name} {word}".strip())


COMMANDS = dict(commands(typer.main.get_command(app)))


def options(command: Any) -> set[str]:
    return {option for parameter in command.params for option in parameter.opts}


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_and_option_has_a_help_text(name: str):
    command = COMMANDS[name]
    assert command.help
    for parameter in command.params:
        assert parameter.help, parameter.name


@pytest.mark.parametrize("name", [name for name in COMMANDS if " " in name])
def test_each_command_is_documented(name: str):
    texts = "".join(document.read_text() for document in DOCUMENTS)
    assert f"kaos-memory {name}" in texts


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_documents_name_only_commands_and_options_that_exist(document: Path):
    mentioned = _MENTIONED.findall(document.read_text())
    assert mentioned
    for words, rest in mentioned:
        name = words.strip()
        assert name in COMMANDS, name
        given = set(re.findall(r"--[a-z-]+", rest))
        assert given <= options(COMMANDS[name]), (name, given)
