"""The package as others get it: its schema, its documentation, its installation."""

import json
import re
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any, cast

import pulumi
import pytest
from pulumi.provider.experimental.component import ComponentProvider

import pulumi_kaos
from pulumi_kaos import DevPostgres, MemoryStore, ModelAPI
from pulumi_kaos._settings import VARIABLES

UV = (sys.executable, "-m", "uv")
ROOT = Path(__file__).resolve().parents[2]
COMPONENTS: list[type[pulumi.ComponentResource]] = [MemoryStore, ModelAPI, DevPostgres]


@pytest.fixture(scope="module")
def schema() -> dict[str, Any]:
    provider = ComponentProvider(COMPONENTS, "kaos")
    return json.loads(cast("str", provider.schema))


def test_the_public_names():
    assert sorted(pulumi_kaos.__all__) == [
        "ArgumentsError",
        "DevPostgres",
        "DevPostgresArgs",
        "MemoryStore",
        "MemoryStoreArgs",
        "ModelAPI",
        "ModelApiArgs",
        "ModelApiReference",
        "SecretReference",
        "dev_postgres_problems",
        "dsn_problems",
        "memory_store_problems",
        "model_api_problems",
    ]


def test_the_plugin_has_a_schema(schema: dict[str, Any]):
    assert schema["resources"].keys() == {
        "kaos:index:MemoryStore",
        "kaos:index:ModelAPI",
        "kaos:index:DevPostgres",
    }
    store = schema["resources"]["kaos:index:MemoryStore"]
    assert set(store["requiredInputs"]) == {"namespace", "image", "storage", "models"}
    assert set(store["required"]) == {
        "endpoint",
        "serviceName",
        "deploymentName",
        "ready",
        "phase",
        "message",
    }


def test_the_schema_describes_every_property(schema: dict[str, Any]):
    shapes = {**schema["types"], **schema["resources"]}
    for name, shape in shapes.items():
        assert shape["description"], name
        properties = {**shape.get("inputProperties", {}), **shape.get("properties", {})}
        for field, found in properties.items():
            assert found.get("description"), f"{name}.{field}"


def test_numbers_and_flags_are_plain(schema: dict[str, Any]):
    for name, shape in schema["types"].items():
        for field, found in shape["properties"].items():
            if found.get("type") in ("integer", "number", "boolean"):
                assert found.get("plain"), f"{name}.{field}"


def test_documented_defaults_are_the_services(schema: dict[str, Any]):
    def camel(name: str) -> str:
        return re.sub(r"_(\w)", lambda found: found.group(1).upper(), name)

    def description(path: tuple[str, ...]) -> str | None:
        shape = schema["resources"]["kaos:index:MemoryStore"]["inputProperties"]
        found: dict[str, Any] = {}
        for part in path:
            if camel(part) not in shape:
                return None
            found = shape[camel(part)]
            if "$ref" in found:
                shape = schema["types"][found["$ref"].removeprefix("#/types/")]["properties"]
        return found["description"]

    checked = 0
    for variable in VARIABLES.values():
        text, default = description(variable.path), variable.field.default
        required = variable.field.is_required() or variable.dotted == "storage.type"
        if text is None or required or default in (None, ""):
            continue
        shown = str(default).lower() if isinstance(default, bool) else str(default)
        assert re.search(rf"Default {shown}\b", text), variable.dotted
        checked += 1
    assert checked >= 20


def test_the_components_outputs_are_declared(schema: dict[str, Any]):
    for component in COMPONENTS:
        token = f"kaos:index:{component.__name__}"
        assert schema["resources"][token]["isComponent"] is True


def test_the_plugins_folder_is_complete():
    assert (ROOT / "components" / "PulumiPlugin.yaml").read_text().endswith("runtime: python\n")
    code = (
        "import runpy, sys; sys.path.insert(0, sys.argv[1]); "
        "runpy.run_path(sys.argv[1], run_name='plugin')"
    )
    subprocess.run([sys.executable, "-c", code, str(ROOT / "components")], check=True)


@pytest.mark.slow
def test_the_package_installs_alone(tmp_path: Path):
    environment = tmp_path / "venv"
    python = environment / "bin" / "python"
    subprocess.run(
        [*UV, "venv", "--quiet", "-p", sys.executable, environment],
        check=True,
    )
    subprocess.run(
        [
            sys.executable,
            "-m",
            "uv",
            "pip",
            "install",
            "--quiet",
            "--python",
            python,
            ROOT / "components",
        ],
        check=True,
    )
    code = (
        "import importlib.metadata as m, pulumi_kaos, pulumi_kaos._settings as s, pathlib\n"
        "assert pulumi_kaos.MemoryStore and s.VARIABLES\n"
        "assert not pathlib.Path(s.__file__).is_symlink()\n"
        "names = {d.metadata['Name'].lower() for d in m.distributions()}\n"
        "assert not names & {'kaos-memory', 'kaos-memorystore', 'mem0ai'}, names\n"
    )
    subprocess.run([python, "-c", code], check=True, cwd=tmp_path)


def carried(wheel: Path) -> tuple[dict[str, bytes], list[str]]:
    """Return the settings' files in the wheel and the names of all its files."""
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        settings = [name for name in names if name.startswith("pulumi_kaos/_settings/")]
        return {Path(name).name: archive.read(name) for name in settings}, names


# Without options uv builds the sdist, and the wheel from the unpacked sdist.
@pytest.mark.parametrize("options", [["--wheel"], []], ids=["direct", "through the sdist"])
def test_the_wheel_carries_the_settings_as_a_file(tmp_path: Path, options: list[str]):
    command = [*UV, "build", "--quiet", *options, "--out-dir", tmp_path, ROOT / "components"]
    subprocess.run(command, check=True)
    (wheel,) = tmp_path.glob("*.whl")
    settings, names = carried(wheel)
    package = ROOT / "service" / "kaos_memory" / "settings"
    assert settings == {file.name: file.read_bytes() for file in package.glob("*.py")}
    assert not [n for n in names if n.startswith("kaos_memory/")]
    assert len(list(tmp_path.glob("*.tar.gz"))) == (0 if options else 1)
