"""A roofline is monotone in everything that is work, and near what was published."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.plan.catalogue import MODELS
from policies.codesign.capacity import room, verifiers_per_drafter
from policies.codesign.roofline import (
    Machine,
    UnsupportedError,
    forward,
    ragged,
    touched_experts,
)
from policies.codesign.shape import Experts, Shape
from policies.devices import DEVICES, UnknownNameError, device

LLAMA = MODELS["Llama-3.1-8B"]
H100 = Machine(DEVICES["H100"])

models = st.sampled_from([m for m in MODELS.values() if m.dtype == "bf16"])
machines = st.sampled_from([Machine(d, tp) for d in DEVICES.values() for tp in (1, 2)])
few = st.integers(1, 64)


@given(models, few, st.integers(0, 31), st.integers(1, 32_000))
def test_more_work_never_takes_less_time(
    shape: Shape, sequences: int, depth: int, context: int
) -> None:
    now = forward(shape, H100, sequences, depth, context).total
    assert forward(shape, H100, sequences, depth + 1, context).total >= now
    assert forward(shape, H100, sequences + 1, depth, context).total >= now
    assert forward(shape, H100, sequences, depth, context + 1).total >= now


@given(models, few, st.integers(0, 31), st.integers(1, 32_000))
def test_a_faster_device_is_never_slower(
    shape: Shape, sequences: int, depth: int, context: int
) -> None:
    slow, fast = Machine(DEVICES["H100"]), Machine(DEVICES["H200"])
    args = (sequences, depth, context)
    assert forward(shape, fast, *args).total <= forward(shape, slow, *args).total


@given(few, st.integers(0, 15), st.integers(1, 9_000))
def test_rows_of_like_blocks_cost_the_same_as_a_step_and_as_a_sum(
    sequences: int, depth: int, context: int
) -> None:
    rows = sequences * (1 + depth)
    assert ragged(LLAMA, H100, rows, sequences, context) == forward(
        LLAMA, H100, sequences, depth, context
    )


def test_one_row_of_llama_8b_on_an_h100_is_near_the_published_fit() -> None:
    """SpecDecode-Bench (arXiv 2601.11580): 5.886 ms + 21 us a row + 39.3 ns a token of context,
    and 1.207 ms of host."""
    for context in (1, 1024, 8192):
        published = 5.886e-3 + 21e-6 + 39.3e-9 * context + 1.207e-3
        assert forward(LLAMA, H100, 1, 0, context).total == pytest.approx(published, rel=0.1)


@pytest.mark.parametrize(
    ("name", "weights", "active"),
    [
        ("Llama-3.1-8B", 8.03e9, None),
        ("Llama-3.3-70B", 70.6e9, None),
        ("Qwen3-8B", 8.19e9, None),
        ("Qwen3-30B-A3B", 30.5e9, 3.3e9),
        ("Qwen3-235B-A22B", 235e9, 22e9),
        ("gpt-oss-120b", 117e9, 5.1e9),
        ("DeepSeek-V3", 671e9, 37e9),
        ("SmolLM2-135M", 0.1345e9, None),
    ],
)
def test_shapes_have_the_parameters_their_makers_report(
    name: str, weights: float, active: float | None
) -> None:
    assert MODELS[name].weights == pytest.approx(weights, rel=0.01)
    if active is not None:  # reports count the embedding or not
        assert MODELS[name].active_weights == pytest.approx(active, rel=0.09)


def test_kv_bytes_are_two_rows_of_every_layer() -> None:
    assert LLAMA.kv_bytes_per_token == 2 * 32 * 8 * 128 * 2 == 131072
    assert replace(LLAMA, kv_dtype="fp8").kv_bytes_per_token == 65536
    assert MODELS["DeepSeek-V3"].kv_bytes_per_token == 61 * (512 + 64) * 2
    oss = MODELS["gpt-oss-120b"]  # half of its layers see 128 tokens
    assert oss.kv_bytes(10_000) - oss.kv_bytes(9_999) == 18 * 2 * 8 * 64 * 2


@given(st.integers(1, 300))
def test_rows_touch_ever_more_experts_and_never_more_than_there_are(rows: int) -> None:
    touched = touched_experts(128, 8, rows)
    assert touched_experts(128, 8, 1) == pytest.approx(8)
    assert touched <= min(128, 8 * rows) + 1e-9
    assert touched_experts(128, 8, rows + 1) > touched or touched > 127.99


def test_a_mixture_pays_for_drafted_rows_where_a_dense_model_does_not() -> None:
    """Sparsity and D together: each further row reads further experts."""

    def ratio(shape: Shape) -> float:
        return forward(shape, H100, 1, 7, 512).weights / forward(shape, H100, 1, 0, 512).weights

    assert ratio(LLAMA) == 1.0
    assert ratio(MODELS["Qwen3-30B-A3B"]) > 2.0


def test_ranks_share_the_work_and_pay_for_it_in_all_reduces() -> None:
    one, four = forward(LLAMA, H100, 8, 3, 2048), forward(LLAMA, replace(H100, tp=4), 8, 3, 2048)
    assert four.weights == pytest.approx(one.weights / 4)
    assert four.attention == pytest.approx(one.attention / 4)
    assert one.links == 0.0 < four.links


def test_what_a_device_cannot_do_is_refused_by_name() -> None:
    with pytest.raises(UnsupportedError, match="A100 has no fp8 units; it has bf16"):
        forward(replace(LLAMA, dtype="fp8"), Machine(DEVICES["A100"]), 1, 0, 1)
    with pytest.raises(UnsupportedError, match=r"32 query heads .* do not divide by tp 3"):
        forward(LLAMA, replace(H100, tp=3), 1, 0, 1)
    with pytest.raises(UnknownNameError, match="unknown GPU 'H900'; known: A10, A100"):
        device("H900")
    assert device("h-200").name == "H200"
    with pytest.raises(ValueError, match="no multiple"):
        Shape("odd", 8, 1, 3, 2, 4, 8, 8)


def test_weights_that_do_not_fit_say_how_many_devices_it_takes() -> None:
    big = MODELS["Llama-3.3-70B"]
    with pytest.raises(UnsupportedError, match="it takes 2 or more"):
        room(big, H100)
    space = room(big, replace(H100, tp=2))
    assert space.kv == pytest.approx(2 * 80e9 * 0.9 - big.weights * 2)
    assert space.sequences(big, 2048, 2) == int(space.kv / (2048 * 327680))


def test_fewer_kv_heads_than_ranks_are_kept_more_than_once() -> None:
    shape = replace(MODELS["Qwen3-30B-A3B"], experts=Experts(8, 8, 768))
    four, eight = room(shape, replace(H100, tp=4)), room(shape, replace(H100, tp=8))
    assert four.sequences(shape, 4096, 4) == int(four.kv / shape.kv_bytes(4096))
    assert eight.sequences(shape, 4096, 8) == int(eight.kv / 2 / shape.kv_bytes(4096))


@given(st.floats(1e-4, 1.0), st.floats(1e-4, 1.0))
def test_a_drafter_carries_as_many_verifiers_as_its_share_of_the_round(r: float, d: float) -> None:
    assert verifiers_per_drafter(r, d) * d == pytest.approx(r)
    assert verifiers_per_drafter(r, 0.0) == float("inf")
