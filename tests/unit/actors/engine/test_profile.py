"""The target's profile, on a clock that forwards move by a known law."""

from __future__ import annotations

import pytest
import torch

from actors.engine.batch import StepBatch
from actors.engine.kv import KVPool
from actors.engine.profile import CONTEXT, LONG, ROWS, by_rows, one_row, profile
from actors.engine.state import PagedKV
from actors.engine.target import TargetInfo
from policies import estimate_cost

LENGTH = CONTEXT + max(ROWS)


class Lawful:
    """Implements `actors.engine.executor.Executor`: a row takes `row_s`, and so on. The first
    forward of each shape takes twice as long."""

    taps: tuple[int, ...] = ()
    device = "cpu"
    feature_dim = 0

    def __init__(self, step_s: float = 1.0, heads: int = 1) -> None:
        spec = (PagedKV(heads, 2),)
        self.info = TargetInfo(16, frozenset(), spec, 4, 1, torch.float32)
        self.step_s = step_s
        self.now_s = 0.0
        self.shapes: list[tuple[int, int, int]] = []

    def clock(self) -> float:
        return self.now_s

    def forward(self, batch: StepBatch, pool: KVPool) -> torch.Tensor:
        rows, context = batch.ids.numel(), sum(span.kv_stop for span in batch.spans)
        assert sorted(set(batch.slots.tolist())) == sorted(batch.slots.tolist())
        assert int(batch.slots.max()) < pool.num_slots
        assert [span.stop - span.start for span in batch.spans] == [rows // len(batch.spans)] * len(
            batch.spans
        )
        shape = (rows, len(batch.spans), context)
        took_s = self.step_s * (1.0 + 0.01 * rows + 0.03 * len(batch.spans) + 0.0001 * context)
        self.now_s += took_s if shape in self.shapes else 2 * took_s
        self.shapes.append(shape)
        return torch.zeros(rows, 16)


def test_rows_sequences_and_context_are_told_apart() -> None:
    target = Lawful(1e-3)
    cost = estimate_cost.profiled(profile(target, 4096, clock=target.clock))
    assert cost.rows == tuple(sorted(ROWS))
    assert cost.sequence_s == pytest.approx(0.03e-3)
    assert cost.token_s == pytest.approx(0.0001e-3)
    expected_s = 1e-3 * (1.0 + 0.01 * 24 + 0.03 * 5 + 0.0001 * 3000)
    assert estimate_cost.step_s(cost, 24, 5, 3000) == pytest.approx(expected_s)


def test_a_slow_target_is_looked_at_twice_and_no_more() -> None:
    target = Lawful(1.0)
    samples = profile(target, 4096, clock=target.clock)
    assert by_rows(samples) == [
        (sample.rows, sample.seconds) for sample in samples if sample.sequences == 1
    ]
    assert [sample.rows for sample in samples] == [1, 16]


def test_who_is_patient_sees_more_of_it() -> None:
    target = Lawful(1.0)
    samples = profile(target, 4096, patience=1e6, clock=target.clock)
    assert {sample.rows for sample in samples} == set(ROWS)


def test_a_look_is_the_first_sample_of_a_profile() -> None:
    target = Lawful(1e-3)
    assert one_row(target, 4096, clock=target.clock) in profile(target, 4096, clock=target.clock)


def test_no_more_sequences_than_the_engine_takes_share_a_step() -> None:
    target = Lawful(1e-3)
    profile(target, 4096, max_num_seqs=5, clock=target.clock)
    assert max(sequences for _, sequences, _ in target.shapes) == 4


def test_a_short_context_is_enough() -> None:
    target = Lawful(1e-3)
    samples = profile(target, 24, clock=target.clock)
    assert max(sample.context for sample in samples) <= 24
    assert max(sample.rows for sample in samples) == 24


def test_where_there_is_no_room_for_a_long_context_none_is_looked_at() -> None:
    target = Lawful(1e-3, heads=1 << 14)
    samples = profile(target, 4096, clock=target.clock)
    assert max(sample.context for sample in samples) < 2 * LENGTH
    assert max(sample.sequences for sample in samples) == 8


def test_a_given_pool_is_not_left() -> None:
    target = Lawful(1e-3)
    pool = KVPool(target.info.spec, LENGTH // 16, 16, torch.float32, "cpu")
    samples = profile(target, 4096, pool, clock=target.clock)
    assert max(sample.context for sample in samples) <= LENGTH


def test_the_stairs_are_those_of_one_sequence_at_a_short_context() -> None:
    target = Lawful(1e-3)
    samples = profile(target, 4096, clock=target.clock)
    assert max(sample.context for sample in samples) == LONG
    assert by_rows(samples) == [
        (rows, pytest.approx(1e-3 * (1.03 + 0.01 * rows + 0.0001 * LENGTH)))
        for rows in sorted(ROWS)
    ]
