"""A greedy block in one call of the library is the block that is drafted step by step."""

from __future__ import annotations

import random
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from actors.contracts import DrafterError, DraftRequest
from actors.drafters.eagle3 import EagleDrafter
from actors.sampling.params import SamplingParams
from tests.law.harness import GREEDY, SAMPLED
from tests.law.learned import Follower, make, propose
from tests.native import needs_compiler

pytestmark = needs_compiler
torch.set_num_threads(1)

CACHE = str(Path(tempfile.gettempdir()) / "pilotfish-tests-executor")
NAMES = [
    "EAGLE-3 SafeAILab",
    "EAGLE-3 SafeAILab narrow",
    "EAGLE-3 DeepSpec",
    "EAGLE-3 speculators",
    "EAGLE-3.1 speculators",
]


def pair(name: str, **fields: Any) -> tuple[EagleDrafter, EagleDrafter]:
    """In one call, and step by step on the same kernels."""
    made = []
    for _ in range(2):
        drafter = make(name, dtype="bfloat16", compile_cache=CACHE, threads=2, **fields)
        assert isinstance(drafter, EagleDrafter)
        assert drafter._packed is not None
        made.append(drafter)
    made[1]._packed = None
    return made[0], made[1]


@pytest.mark.parametrize("name", NAMES)
def test_blocks_of_many_lengths_are_those_drafted_step_by_step(name: str) -> None:
    """Over commits; sampled and processed requests beside greedy ones."""
    rng = random.Random(3)
    penalty = replace(GREEDY, repetition_penalty=1.3)
    kinds = [GREEDY, GREEDY, SAMPLED, penalty, GREEDY]
    texts = [[rng.randrange(128) for _ in range(n)] for n in (2, 9, 40, 7, 62)]
    both = [
        [
            Follower(d, f"r{i}", list(t), k)
            for i, (t, k) in enumerate(zip(texts, kinds, strict=True))
        ]
        for d in pair(name)
    ]
    for followers in both:
        followers[0].drafter.open([f.opening() for f in followers])
    for turn in range(4):
        depths = [1 + (turn + i) % 4 for i in range(len(texts))]
        found = []
        for followers in both:
            wanted = {f.key: d for f, d in zip(followers, depths, strict=True)}
            blocks = propose(followers[0].drafter, wanted)
            found.append([blocks[f.key].tokens for f in followers])
        assert found[0] == found[1]
        assert [len(tokens) for tokens in found[0]] == depths
        for followers in both:
            commits = [f.commit([*b[:turn], 5]) for f, b in zip(followers, found[0], strict=True)]
            followers[0].drafter.observe(commits)


def test_nothing_follows_an_end() -> None:
    one, steps = pair("EAGLE-3 DeepSpec")
    s = Follower(steps, "r", [5, 17, 99, 3, 64])
    steps.open([s.opening()])
    block = propose(steps, {s.key: 4})[s.key].tokens
    stop = SamplingParams(temperature=0.0, stop_token_ids=frozenset({block[1]}))
    ended = Follower(one, "r", [5, 17, 99, 3, 64], stop)
    one.open([ended.opening()])
    first = block.index(block[1])
    assert propose(one, {ended.key: 4})[ended.key].tokens == block[: first + 1]


def test_logits_that_are_no_numbers_fault_their_session_alone() -> None:
    drafter, _ = pair("EAGLE-3 speculators")
    good, bad = (Follower(drafter, n, [4, 8, 15, 16]) for n in ("good", "bad"))
    opening = bad.opening()
    assert opening.features is not None
    drafter.open([good.opening(), replace(opening, features=opening.features * float("nan"))])
    with pytest.raises(DrafterError) as caught:
        drafter.propose([DraftRequest(good.key, 3), DraftRequest(bad.key, 3)])
    assert caught.value.keys == (bad.key,)
    assert len(propose(drafter, {good.key: 3})[good.key].tokens) == 3
