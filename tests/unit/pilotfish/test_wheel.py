"""The SDK installs alone: its wheel, unpacked beside grpc and protobuf only, works."""

from __future__ import annotations

import importlib.metadata
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import grpc
import pytest
from google import protobuf

import pilotfish

ROOT = Path(pilotfish.__file__).parents[1]
NEEDED = {"grpcio": Path(grpc.__file__).parent, "protobuf": Path(protobuf.__file__).parent}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built once, from a copy so that the tree stays as it is."""
    folder = tmp_path_factory.mktemp("wheel")
    ignore = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "pilotfish", folder / "pilotfish", ignore=ignore)
    shutil.copytree(ROOT / "infra" / "client", folder / "infra" / "client")
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run(
        [*pip, "--no-index", "-w", str(folder / "out"), str(folder / "infra" / "client")],
        check=True,
        timeout=120,
    )
    (built,) = (folder / "out").glob("*.whl")
    return built


def lonely_path(folder: Path, wheel: Path) -> Path:
    """A site folder with the wheel, grpc, protobuf and typing_extensions, which grpc imports."""
    site = folder / "site"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    (site / "grpc").symlink_to(NEEDED["grpcio"])
    (site / "google").mkdir()
    (site / "google" / "protobuf").symlink_to(NEEDED["protobuf"])
    upb = NEEDED["protobuf"].parent / "_upb"
    if upb.exists():
        (site / "google" / "_upb").symlink_to(upb)
    import typing_extensions

    shutil.copy(typing_extensions.__file__, site)
    return site


def test_the_wheel_works_where_only_grpc_and_protobuf_are(wheel: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    tops = {name.split("/")[0] for name in names}
    assert tops == {"pilotfish", f"pilotfish_client-{pilotfish.__version__}.dist-info"}
    assert {"pilotfish/py.typed", "pilotfish/v1/inference_pb2.pyi"} <= set(names)
    site = lonely_path(tmp_path, wheel)
    code = (
        f"import sys; sys.path.insert(0, {str(site)!r})\n"
        "import pilotfish\n"
        "assert pilotfish.Client and pilotfish.AsyncClient\n"
        "try: pilotfish.Client('127.0.0.1:1', retries=0, timeout=5).models()\n"
        "except pilotfish.UnavailableError: pass\n"
        "else: raise AssertionError('nobody is there')\n"
        "assert pilotfish.__file__.startswith(sys.path[0]), pilotfish.__file__\n"
        "heavy = {'torch', 'ray', 'numpy', 'transformers'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    subprocess.run([sys.executable, "-I", "-S", "-c", code], check=True, timeout=60, cwd=tmp_path)


def test_the_wheel_asks_for_grpc_and_protobuf_alone(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (metadata,) = (name for name in archive.namelist() if name.endswith("/METADATA"))
        text = archive.read(metadata).decode()
    required = sorted(line.split(": ")[1] for line in text.splitlines() if "Requires-Dist" in line)
    assert [name.split(">")[0] for name in required] == ["grpcio", "protobuf"]
    whole = importlib.metadata.requires("pilotfish") or []
    for requirement in required:
        assert requirement in whole, "the two distributions disagree on their bounds"
