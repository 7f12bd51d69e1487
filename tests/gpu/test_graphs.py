"""Replayed graphs write what eager forwards write."""

from __future__ import annotations

import pytest
import torch

from actors.engine.attention import ATTENTION
from actors.engine.core import Engine
from actors.engine.cuda.target import GraphTarget
from actors.engine.plan import Plan
from actors.engine.target import Target
from actors.exchange.local import LocalPort
from tests.drafters.exact_k import ExactKDrafter
from tests.law.harness import GREEDY, request, run
from tests.models import make_rand

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device"),
]
PROMPTS = [[(5 * i + 2) % 128 for i in range(21)], [9, 2, 6], [5, 3, 5, 8]]


def engine_on_the_device() -> tuple[Engine, Target]:
    model = make_rand().to("cuda")
    model.set_attn_implementation(ATTENTION)
    target = Target(model, device="cuda")
    drafter = ExactKDrafter(lambda prefix, params: 0, 128, k=3)
    engine = Engine(
        target, LocalPort(drafter), Plan(4), num_blocks=64, block_size=8, max_model_len=256
    )
    return engine, target


def test_a_captured_engine_writes_the_eager_ones_tokens() -> None:
    requests = [request(str(i), prompt, GREEDY) for i, prompt in enumerate(PROMPTS)]
    eager, _ = engine_on_the_device()
    expected = run(eager, *requests)
    captured, target = engine_on_the_device()
    graphs = GraphTarget(target, captured.pool, 256, budget_bytes=1 << 30)
    captured.target = graphs
    for _ in range(2):
        assert run(captured, *requests) == expected
    assert graphs.reason == ""
    assert graphs._graphs
    assert 0 < graphs.graph_bytes <= 1 << 30
