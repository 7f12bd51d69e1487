"""Scripts under test: their folders are no packages, they import each other by name."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

INFRA = Path(__file__).resolve().parents[3] / "infra"


@contextmanager
def importable(folder: Path) -> Iterator[None]:
    """Within, the folder's scripts can be imported; afterwards they are forgotten."""
    before = set(sys.modules)
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))
        for name in set(sys.modules) - before:
            if Path(getattr(sys.modules[name], "__file__", None) or "/").parent == folder:
                del sys.modules[name]


def module(name: str) -> ModuleType:
    return __import__(name)
