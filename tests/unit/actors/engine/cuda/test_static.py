"""The law of padding: a fixed shape gives the live rows what an eager forward gives them, and
leaves everything else in the pool as it was."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from actors.contracts import Draft
from actors.engine.attention import ATTENTION
from actors.engine.batch import Segment, StepBatch, pack
from actors.engine.cuda.shapes import Shape, shape_of
from actors.engine.cuda.static import StaticForward
from actors.engine.cuda.target import GraphTarget
from actors.engine.kv import BlockTable, KVPool
from actors.engine.sequence import EngineRequest, Sequence, Status
from actors.engine.target import Target
from actors.sampling.params import SamplingParams
from tests.law.test_windows import make_mistral
from tests.models import make_rand

SIZE, BLOCKS, LONGEST = 4, 24, 40
PROMPTS = (list(range(9)), [5, 3, 8], list(range(40, 70)))
BLOCK_IDS = ([7, 2, 19, 3], [11, 4], [0, 1, 5, 6, 8, 9, 10, 23, 22])
DRAFTS = ((1, 2, 3), (), (9,))


class Scene:
    """Three sequences in scattered blocks of a pool whose other slots hold garbage."""

    def __init__(
        self, dtype: torch.dtype, taps: tuple[int, ...] = (), window: int | None = None
    ) -> None:
        network: Any = make_rand() if window is None else make_mistral(window)
        network = network.to(dtype)
        network.set_attn_implementation(ATTENTION)
        self.target = Target(network, taps)
        info = self.target.info
        self.pool = KVPool(info.spec, BLOCKS, SIZE, dtype, "cpu", self.target.feature_dim)
        for tensor in self.tensors():
            tensor[: self.pool.num_slots] = torch.nan
        self.sequences = []
        for number, (prompt, ids) in enumerate(zip(PROMPTS, BLOCK_IDS, strict=True)):
            table = BlockTable(SIZE, "cpu")
            table.extend(list(ids))
            request = EngineRequest(str(number), tuple(prompt), SamplingParams())
            sequence = Sequence(request, prompt, table, self.pool, LONGEST, 0, Status.RUNNING)
            self.sequences.append(sequence)
        prefill = [Segment(s, len(s.tokens) - 1) for s in self.sequences]
        self.target.forward(pack(prefill, "cpu"), self.pool)
        for sequence in self.sequences:
            sequence.kv_len = len(sequence.tokens) - 1

    def tensors(self) -> list[torch.Tensor]:
        features = [] if self.pool.features is None else [self.pool.features]
        return [*self.pool.keys, *self.pool.values, *features]

    def batch(self) -> StepBatch:
        drafts = [Draft(tokens, "any", False) if tokens else None for tokens in DRAFTS]
        return pack([Segment(s, 1, d) for s, d in zip(self.sequences, drafts, strict=True)], "cpu")

    def shape(self) -> Shape:
        batch = self.batch()
        longest = max(span.kv_stop for span in batch.spans)
        shape = shape_of(batch.ids.shape[1], longest, LONGEST, SIZE)
        assert shape is not None
        return shape


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("window", [None, 6])
@pytest.mark.parametrize("taps", [(), (0, 2)])
def test_padding_gives_live_rows_their_eager_result_and_touches_nothing_else(
    dtype: torch.dtype, window: int | None, taps: tuple[int, ...]
) -> None:
    eager, static = (Scene(dtype, taps, window) for _ in range(2))
    batch, shape = static.batch(), static.shape()
    assert batch.ids.shape[1] == 7 < shape.rows == 8
    before = [tensor.clone() for tensor in static.tensors()]
    expected = eager.target.forward(batch, eager.pool)
    forward = StaticForward(static.target, static.pool, shape)
    forward.load(batch)
    logits = forward.run()
    close = {"rtol": 0, "atol": 1e-4 if dtype == torch.float32 else 1e-11}
    torch.testing.assert_close(logits[batch.keep], expected, **close)
    others = torch.ones(static.pool.num_slots + 1, dtype=torch.bool)
    others[[*batch.slots.tolist(), static.pool.scratch]] = False
    for old, new, wanted in zip(before, static.tensors(), eager.tensors(), strict=True):
        torch.testing.assert_close(new[batch.slots], wanted[batch.slots], **_as(new, close))
        assert _same_bytes(new[others], old[others])
        assert bool(new[static.pool.scratch].isfinite().all())


def test_a_shape_is_used_again_without_a_trace_of_the_step_before() -> None:
    scene, fresh = Scene(torch.float64), Scene(torch.float64)
    forward = StaticForward(scene.target, scene.pool, scene.shape())
    forward.load(scene.batch())
    forward.run()
    alone = pack([Segment(scene.sequences[1], 1)], "cpu")
    forward.load(alone)
    expected = fresh.target.forward(pack([Segment(fresh.sequences[1], 1)], "cpu"), fresh.pool)
    torch.testing.assert_close(forward.run()[alone.keep], expected, rtol=0, atol=1e-11)


def test_without_a_device_to_capture_on_everything_stays_eager_and_says_why() -> None:
    scene, fresh = Scene(torch.float64), Scene(torch.float64)
    graphs = GraphTarget(scene.target, scene.pool, LONGEST, budget_bytes=1 << 30)
    for _ in range(3):
        expected = fresh.target.forward(fresh.batch(), fresh.pool)
        assert graphs.forward(scene.batch(), scene.pool).equal(expected)
    assert "cannot be captured" in graphs.reason


def test_what_does_not_fit_the_budget_is_not_captured() -> None:
    scene = Scene(torch.float64)
    graphs = GraphTarget(scene.target, scene.pool, LONGEST, budget_bytes=0)
    assert graphs.least_bytes(scene.shape()) == 8 * 40 * 2 * 2 * 16 * 8
    for _ in range(3):
        graphs.forward(scene.batch(), scene.pool)
    assert graphs.reason == ""
    assert graphs.graph_bytes == 0


def _as(tensor: torch.Tensor, close: dict[str, float]) -> dict[str, float]:
    return {"rtol": 2**-7, "atol": 1e-5} if tensor.dtype == torch.bfloat16 else close


def _same_bytes(left: torch.Tensor, right: torch.Tensor) -> bool:
    return left.contiguous().view(torch.uint8).equal(right.contiguous().view(torch.uint8))
