"""Suffix decoding beside a learned drafter, in a real engine: the text is the target's own."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from actors.drafters.combined import CombinedDrafter
from actors.drafters.config import DrafterConfig
from actors.drafters.table import build_drafter
from tests.checkpoints.target import target, target_folder
from tests.law.harness import GREEDY, SAMPLED, assert_pools_full, make_engine, plain, request, run
from tests.law.learned import checkpoint

torch.set_num_threads(1)

PROMPTS = [[1, 2, 3, 4] * 8, [9, 2, 6], [(5 * i + 2) % 128 for i in range(21)]]


@pytest.mark.parametrize("rule", ["greedy", "coupled"])
@pytest.mark.parametrize("name", ["EAGLE-3 speculators", "MTP DeepSeek", "DeepSpec vanilla"])
def test_the_text_is_the_targets_own_whoever_drafts(name: str, rule: str) -> None:
    folder, method = checkpoint(name)
    sampling = replace(GREEDY if rule == "greedy" else SAMPLED, max_tokens=40)
    drafter = build_drafter(
        DrafterConfig(
            method,
            model=str(folder),
            target=str(target_folder()),
            dtype="float64",
            enable_suffix_decoding=True,
        )
    )
    assert isinstance(drafter, CombinedDrafter)
    own = {str(i): plain(target(), p, sampling) for i, p in enumerate(PROMPTS)}
    engine = make_engine(target(), drafter, 4, max_rows=16, max_num_seqs=4)
    assert run(engine, *(request(str(i), p, sampling) for i, p in enumerate(PROMPTS))) == own
    assert engine.stats.drafted > 0
    assert_pools_full(engine)
    assert not drafter.sessions
