"""Where learned drafters compute, and in what."""

from __future__ import annotations

import random
import tempfile
from pathlib import Path

import pytest
import torch

from actors.drafters.eagle3 import EagleDrafter
from actors.drafters.errors import DrafterLoadError
from actors.drafters.learned.block_drafter import BlockDrafter
from actors.drafters.learned.blocks import DecoderLayer, RMSNorm
from actors.drafters.learned.eagle_model import EagleLayer
from actors.drafters.mtp import MtpDrafter
from actors.engine.native.linear import PackedLinear
from tests.law.learned import Follower, make, propose
from tests.native import needs_compiler

torch.set_num_threads(1)

CACHE = str(Path(tempfile.gettempdir()) / "pilotfish-tests-executor")
NAMES = [
    "z-lab",
    "z-lab, windows",
    "DeepSpec gated",
    "DFlash 2",
    "Domino",
    "speculators DSpark, reduced",
    "EAGLE-3 DeepSpec",
    "EAGLE-3.1 speculators",
    "P-EAGLE speculators",
    "MTP MiMo",
    "MTP DeepSeek, 3 stages",
    "MTP speculators, reduced",
]


@needs_compiler
@pytest.mark.parametrize("name", NAMES)
def test_on_the_executors_kernels_the_drafts_are_torchs(name: str) -> None:
    rng = random.Random(2)
    plain, packed = make(name, dtype="float32"), make(name, dtype="float32", compile_cache=CACHE)
    assert isinstance(packed, BlockDrafter | EagleDrafter | MtpDrafter)
    kinds = {type(m) for m in (*packed.model.modules(), *packed.ends.modules())}
    assert PackedLinear in kinds
    assert not kinds & {torch.nn.Linear, RMSNorm, EagleLayer, DecoderLayer}
    for length in (2, 9, 40, 150):
        tokens = [rng.randrange(128) for _ in range(length)]
        both = [Follower(drafter, f"r{length}", list(tokens)) for drafter in (plain, packed)]
        for s in both:
            s.drafter.open([s.opening()])
        for kept in (0, 3, 1):  # what was drafted stays behind, or is overwritten
            blocks = [propose(s.drafter, {s.key: 4})[s.key] for s in both]
            assert blocks[0].tokens == blocks[1].tokens
            assert blocks[0].confidence == pytest.approx(blocks[1].confidence, abs=1e-4)
            for s in both:
                s.drafter.observe([s.commit([*blocks[0].tokens[:kept], length % 128])])


@needs_compiler
def test_auto_is_bf16_weights_on_the_kernels_and_fp32_in_torch() -> None:
    packed, plain = make("z-lab", dtype="auto", compile_cache=CACHE), make("z-lab", dtype="float32")
    assert isinstance(packed, BlockDrafter)
    assert isinstance(plain, BlockDrafter)
    assert packed.dtype == plain.dtype == torch.float32  # of activations
    assert packed.info.weight_bytes < 0.7 * plain.info.weight_bytes


def test_a_dtype_that_is_none_is_refused_by_name() -> None:
    with pytest.raises(DrafterLoadError, match="float8") as caught:
        make("z-lab", dtype="float8")
    assert caught.value.param == "dtype"


def test_fewer_drafts_than_asked_for_are_said_and_more_are_never_given(
    caplog: pytest.LogCaptureFixture,
) -> None:
    drafter = make("z-lab", num_speculative_tokens=9)
    assert drafter.info.max_block == 4
    assert "drafts 4 tokens at most, 9 are asked for" in caplog.text
    s = Follower(drafter, "r", [1, 2, 3])
    drafter.open([s.opening()])
    assert len(propose(drafter, {s.key: 9})[s.key].tokens) == 4
