"""The repository's own rules: names, layers of tests, sizes, and what stays out of the files."""

from __future__ import annotations

import ast
import importlib
import re
import statistics
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("pilotfish", "policies", "actors", "cluster")
FILE_LINES, FUNCTION_LINES, MEDIAN_LINES, P90_FUNCTION_LINES = 450, 100, 120, 35


@cache
def tracked() -> tuple[Path, ...]:
    """Files of the repository, those about to be committed included."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    files = (ROOT / name for name in listed.split("\0") if name)
    return tuple(sorted(file for file in set(files) if file.is_file()))


def sources() -> list[Path]:
    """Tracked Python files, generated stubs apart."""
    return [
        f for f in tracked() if f.suffix == ".py" and not f.stem.endswith(("_pb2", "_pb2_grpc"))
    ]


@cache
def parsed(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"), str(file))


def functions() -> Iterator[tuple[str, int]]:
    """Where each function is, and its lines."""
    for file in sources():
        for node in ast.walk(parsed(file)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                yield f"{file.relative_to(ROOT)}:{node.lineno} {node.name}", lines


def lines_of(file: Path) -> int:
    return len(file.read_text(encoding="utf-8").splitlines())


@pytest.mark.parametrize("name", PACKAGES)
def test_each_plain_package_name_is_ours_and_nobody_elses(name: str) -> None:
    module = importlib.import_module(name)
    assert module.__file__ is not None
    assert Path(module.__file__).resolve().parent == ROOT / name
    assert set(packages_distributions().get(name, ())) <= {"pilotfish"}


def test_a_stray_namesake_would_be_seen(tmp_path: Path) -> None:
    stray = tmp_path / "cluster"
    stray.mkdir()
    (stray / "__init__.py").write_text("")
    script = "import cluster, sys; print(cluster.__file__)"
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert Path(done.stdout.strip()).resolve().parent != ROOT / "cluster"


def test_the_wheel_holds_the_four_packages_and_nothing_else() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    include = project["tool"]["setuptools"]["packages"]["find"]["include"]
    assert sorted(include) == sorted(f"{name}*" for name in PACKAGES)
    assert all((ROOT / name / "py.typed").is_file() for name in PACKAGES)


def test_importing_the_sdk_loads_neither_torch_nor_ray() -> None:
    script = (
        "import sys, pilotfish\n"
        "for name in getattr(pilotfish, '__all__', ()):\n    getattr(pilotfish, name)\n"
        "heavy = {'torch', 'ray', 'numpy', 'transformers', 'fastapi', 'cluster', 'actors'}\n"
        "print(sorted(heavy & set(sys.modules)))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert done.stdout == "[]\n", done.stderr


def test_no_file_is_longer_than_a_room_and_most_are_small() -> None:
    sizes = {file: lines_of(file) for file in sources()}
    long = {str(file.relative_to(ROOT)): n for file, n in sizes.items() if n > FILE_LINES}
    assert long == {}
    code = [n for file, n in sizes.items() if n and file.relative_to(ROOT).parts[0] in PACKAGES]
    assert statistics.median(code) <= MEDIAN_LINES


def test_no_function_is_longer_than_a_page_and_most_are_short() -> None:
    sizes = dict(functions())
    assert {where: n for where, n in sizes.items() if n > FUNCTION_LINES} == {}
    code = sorted(n for where, n in sizes.items() if where.split("/")[0] in PACKAGES)
    assert code[int(0.9 * len(code))] <= P90_FUNCTION_LINES


def test_every_level_of_tests_and_packages_is_a_package() -> None:
    """Without it `import policies` finds the test folder of that name."""
    folders = {
        parent
        for file in sources()
        for parent in file.relative_to(ROOT).parents
        if parent.parts and parent.parts[0] in (*PACKAGES, "tests")
    }
    assert [str(f) for f in sorted(folders) if not (ROOT / f / "__init__.py").is_file()] == []


def exported(module: ast.Module) -> list[str] | None:
    """The literal `__all__` of a module."""
    for node in module.body:
        targets = node.targets if isinstance(node, ast.Assign) else ()
        if any(isinstance(target, ast.Name) and target.id == "__all__" for target in targets):
            return list(ast.literal_eval(node.value))
    return None


def test_every_public_surface_is_sorted() -> None:
    names = {str(file.relative_to(ROOT)): exported(parsed(file)) for file in sources()}
    unsorted = [name for name, listed in names.items() if listed and listed != sorted(listed)]
    assert unsorted == []


def test_nothing_is_left_unfinished_or_switched_off() -> None:
    # Written in pieces, so that this file does not find itself.
    words = ("TO" + "DO", "FIX" + "ME", "XX" + "X", "NotImplemented" + "Error", "mark." + "skip(")
    found = [
        f"{file.relative_to(ROOT)}: {word}"
        for file in sources()
        for word in words
        if re.search(rf"(?<![\w$]){re.escape(word)}", file.read_text(encoding="utf-8"))
    ]
    assert found == []


def test_no_file_names_this_machine_or_a_registry() -> None:
    """/home/ray is the home folder inside Ray's own images."""
    paths = r"(?<![\w.:/-])/(?:home/(?!ray\b)|root/|Users/|work/|opt/pypi|opt/wheels)\w*"
    hosts = "|".join(("pypi" + r"\.org", r"python" + r"hosted\.org", r"pypi" + r"\.python"))
    pattern = re.compile(f"{paths}|{hosts}")
    found = []
    for file in tracked():
        try:
            text = file.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        found += [f"{file.relative_to(ROOT)}: {match[0]}" for match in pattern.finditer(text)]
    found = [line for line in found if not line.startswith("tests/unit/test_layout.py")]
    assert found == []


def test_every_relative_link_of_the_docs_leads_somewhere() -> None:
    links = [
        (file, target)
        for file in tracked()
        if file.suffix == ".md"
        for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", file.read_text(encoding="utf-8"))
        if "://" not in target
    ]
    broken = [f"{f.relative_to(ROOT)}: {t}" for f, t in links if not (f.parent / t).exists()]
    assert broken == []


def test_the_readme_names_the_two_commands_and_make_has_them() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for command in ("demo", "test"):
        assert f"make {command}" in readme
        assert re.search(rf"^{command}:", makefile, re.MULTILINE)
