"""From files to forwards: a hybrid is loaded, timed and computed in every dtype."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from actors.engine.loading import load_model
from actors.engine.profile import profile
from tests.hybrids import make_hybrid
from tests.law.harness import GREEDY, make_engine, plain, request, run
from tests.models import save_tiny


def test_a_hybrid_is_loaded_from_safetensors(tmp_path: Path) -> None:
    made = make_hybrid("lfm2", torch.float32)
    loaded = load_model(save_tiny(made, tmp_path), None, torch.float32, "cpu")
    assert run(make_engine(loaded), request("a", [5, 1, 2])) == {
        "a": plain(made, [5, 1, 2], GREEDY)
    }


def test_forwards_are_timed_over_a_context_that_was_never_computed() -> None:
    target = make_engine(make_hybrid("lfm2", torch.float32)).target
    samples = profile(target, 64, patience=1e6)
    rows = [sample.rows for sample in samples]
    assert {1, 16} <= set(rows)
    assert rows == sorted(rows)
    assert {sample.sequences for sample in samples} == {1, 8}


@pytest.mark.parametrize("family", ["lfm2", "qwen3_next", "qwen3_5"])
def test_bf16_differs_from_transformers_by_rounding_alone(family: str) -> None:
    engine = make_engine(make_hybrid(family, torch.bfloat16, initializer_range=0.05))
    engine.self_check()
    assert len(run(engine, request("a", list(range(40))))["a"]) == GREEDY.max_tokens
