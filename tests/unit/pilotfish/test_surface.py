"""Laws of the SDK's surface: what it exports, what importing it costs."""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

import pilotfish
from pilotfish import _errors, _options

HEAVY = ("torch", "ray", "numpy", "transformers", "pydantic", "fastapi", "httpx")


def run(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
        cwd=Path(pilotfish.__file__).parents[1],
    )
    return done.stdout.strip()


def test_all_is_sorted_and_every_name_is_there() -> None:
    assert pilotfish.__all__ == sorted(pilotfish.__all__)
    for name in pilotfish.__all__:
        assert getattr(pilotfish, name) is not None
    assert set(pilotfish.__all__) <= set(dir(pilotfish))


def test_the_lazy_names_are_those_that_type_checkers_see() -> None:
    tree = ast.parse(Path(pilotfish.__file__).read_text())
    block = next(node for node in tree.body if isinstance(node, ast.If))
    seen = {
        alias.name
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert seen == set(pilotfish._MODULE_OF) == set(pilotfish.__all__) - {"__version__"}


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="Shark"):
        _ = pilotfish.Shark


def test_importing_loads_neither_grpc_nor_protobuf_nor_anything_heavy() -> None:
    modules = (*HEAVY, "grpc", "google.protobuf", "asyncio")
    code = f"import sys, pilotfish; print([m for m in {modules!r} if m in sys.modules])"
    assert run(code) == "[]"


def test_importing_loads_the_package_and_the_standard_library_alone() -> None:
    code = (
        "import sys; before = set(sys.modules); import pilotfish; "
        "roots = {name.partition('.')[0] for name in set(sys.modules) - before}; "
        "print(sorted(roots - set(sys.stdlib_module_names)))"
    )
    assert run(code) == "['pilotfish']"


def test_using_the_client_loads_nothing_heavy() -> None:
    code = (
        "import sys, pilotfish; pilotfish.Client('127.0.0.1:1').close(); pilotfish.AsyncClient; "
        f"print([m for m in {HEAVY!r} if m in sys.modules])"
    )
    assert run(code) == "[]"


def test_the_docstring_draws_the_exception_tree() -> None:
    drawn = set(re.findall(r"── (\w+)", _errors.__doc__ or ""))
    errors = {
        name
        for name, value in vars(_errors).items()
        if inspect.isclass(value) and value.__module__ == _errors.__name__
    }
    assert drawn == errors - {"PilotfishError"}
    for name in drawn:
        assert issubclass(getattr(pilotfish, name), pilotfish.PilotfishError)
    assert issubclass(pilotfish.DeadlineExceededError, TimeoutError)


def test_every_option_is_described() -> None:
    described = _options.GenerateOptions.__doc__ or ""
    for name in _options.GenerateOptions.__annotations__:
        assert re.search(rf"\b{name}\b", described), name


def test_public_classes_and_methods_have_docstrings() -> None:
    for cls in (pilotfish.Client, pilotfish.AsyncClient):
        assert cls.__doc__
        for name, method in inspect.getmembers(cls, inspect.isfunction):
            if not name.startswith("_"):
                assert method.__doc__, f"{cls.__name__}.{name}"


def test_both_clients_have_the_same_methods_and_parameters() -> None:
    def surface(cls: type) -> dict[str, list[str]]:
        return {
            name: list(inspect.signature(method).parameters)
            for name, method in inspect.getmembers(cls, inspect.isfunction)
            if not name.startswith("_") or name == "__init__"
        }

    assert surface(pilotfish.Client) == surface(pilotfish.AsyncClient)
    assert surface(pilotfish.Stream) == surface(pilotfish.AsyncStream)
