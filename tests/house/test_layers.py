"""Tries the contracts about imports on a copy of the sources: an import that they forbid makes the check fail."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FRONT_ENDS = "Front ends know services, model, kit and native only"
CODE = shutil.ignore_patterns("*.so", "__pycache__", "v1")


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sources")
    shutil.copytree(ROOT / "broker/penstock", folder / "broker/penstock", ignore=CODE)
    shutil.copytree(ROOT / "operator/penstock_operator", folder / "operator/penstock_operator", ignore=CODE)
    # The generated code is large and imports nothing of ours.
    (folder / "broker/penstock/v1").mkdir()
    for name in ("__init__", "admin_pb2", "backup_pb2", "message_pb2", "messaging_pb2", "staging_pb2", "streams_pb2"):
        (folder / f"broker/penstock/v1/{name}.py").touch()
    shutil.copy(ROOT / "pyproject.toml", folder)
    return folder


def broken_contracts(folder: Path) -> list[str]:
    """Return the names of the contracts that the sources break."""
    path = os.pathsep.join(str(folder / name) for name in ("broker", "operator"))
    command = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache"]
    done = subprocess.run(
        command, cwd=folder, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False
    )
    # A number of ignored imports may follow.
    found = [line.partition(" BROKEN") for line in done.stdout.splitlines()]
    broken = [name for name, word, rest in found if word and (not rest or rest.startswith(" ("))]
    assert done.returncode == (1 if broken else 0), done.stdout + done.stderr
    return broken


def test_the_sources_keep_the_contracts(copy: Path) -> None:
    assert broken_contracts(copy) == []


@pytest.mark.parametrize("package", ["identity", "vhost"])
def test_a_front_end_that_imports_what_is_below_the_services_is_found(copy: Path, package: str) -> None:
    module = copy / "broker/penstock/frontends/grpc/calls.py"
    text = module.read_text()
    module.write_text(f"{text}\nimport penstock.{package}\n")
    try:
        assert broken_contracts(copy) == [FRONT_ENDS]
    finally:
        module.write_text(text)


IN_NO_LAYER = {
    "broker/penstock/unlisted.py": "Layers import only those below them",
    "broker/penstock/services/unlisted.py": "Services are built from subjects, subjects from verbs",
    "broker/penstock/client/unlisted.py": "Connections are built from verbs, verbs from calls, calls from records",
    "broker/penstock/identity/unlisted.py": "Back ends know identities, identities know permissions",
    "operator/penstock_operator/unlisted.py": "Layers of the operator import only those below them",
}


@pytest.mark.parametrize("path", IN_NO_LAYER)
def test_a_module_that_is_in_no_layer_is_found(copy: Path, path: str) -> None:
    module = copy / path
    module.write_text('"""In no layer."""\n')
    try:
        assert broken_contracts(copy) == [IN_NO_LAYER[path]]
    finally:
        module.unlink()
