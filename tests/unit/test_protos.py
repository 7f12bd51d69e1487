"""Generated stubs that belong to their protos, checked without a generator or network."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CHECK = Path("infra/protos/stamp.py")


def check(root: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(root / CHECK), "--check"]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The protos, the stubs and the check, away from the repository."""
    for folder in ("protos", "pilotfish/v1", "infra/protos"):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    return tmp_path


def test_the_stubs_are_those_of_the_protos() -> None:
    done = check(ROOT)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "path", ["protos/pilotfish/v1/exchange.proto", "pilotfish/v1/exchange_pb2.py"]
)
def test_an_edited_proto_and_an_edited_stub_are_named(copy: Path, path: str) -> None:
    assert check(copy).returncode == 0
    with (copy / path).open("a") as file:
        file.write("\n")
    done = check(copy)
    assert done.returncode == 1
    assert done.stderr == f"{path}: not as generated; run `make protos`\n"


def test_a_proto_without_stubs_is_noticed(copy: Path) -> None:
    (copy / "protos/pilotfish/v1/new.proto").write_text('syntax = "proto3";\n')
    assert "protos/pilotfish/v1/new.proto" in check(copy).stderr
