"""What the tests of `pilotfish train` share: a tiny target, and nothing compiled for it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from actors.training import answering
from tests.models import make_rand, save_tiny


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("target")
    save_tiny(make_rand(layers=8, dtype=torch.float32), folder)
    return folder


@pytest.fixture(autouse=True)
def _eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is compiled for a model of a millisecond."""
    monkeypatch.setattr(answering, "find_compiler", lambda: "")
