"""What pays, by the guide's formula, and what crosses the wire."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.plan.catalogue import MODELS
from policies.codesign.drafting import chosen, mechanisms
from policies.codesign.gain import (
    acceptance_for,
    break_even,
    expected_tokens,
    serial_speedup,
    speedup,
)
from policies.codesign.plan import Question, best, falls_at, plan
from policies.codesign.roofline import Machine, forward
from policies.codesign.traffic import bits_a_second, features, round_bytes, wire_s
from policies.devices import DEVICES, UnknownNameError

LLAMA = MODELS["Llama-3.1-8B"]
H100 = Machine(DEVICES["H100"])
depths = st.integers(1, 40)
chances = st.floats(0.0, 1.0)


@given(st.floats(1.0, 9.0), st.floats(0.001, 2.0), depths)
def test_a_serial_drafter_gains_al_over_one_plus_rho_d(al: float, rho: float, d: int) -> None:
    """Where verifying costs what a standard step does."""
    step = 0.01
    gained = speedup(al, step, draft_s=d * rho * step, verify_s=step)
    assert gained == pytest.approx(serial_speedup(al, rho, d))
    assert break_even(step, d * rho * step, step) == pytest.approx(1 + rho * d)


@given(st.floats(0.001, 1), st.floats(0, 1), st.floats(0.001, 1), st.floats(0, 1))
def test_at_its_break_even_a_round_gains_nothing(t: float, d: float, v: float, w: float) -> None:
    assert speedup(break_even(t, d, v, w), t, d, v, w) == pytest.approx(1.0)


@given(chances, depths)
def test_tokens_of_a_round_are_one_to_one_plus_d_and_rise_with_both(a: float, d: int) -> None:
    tokens = expected_tokens(a, d)
    assert 1.0 <= tokens <= 1 + d + 1e-9
    assert expected_tokens(a, d + 1) >= tokens
    assert expected_tokens(min(1.0, a + 0.01), d) >= tokens


@given(st.floats(1.0, 20.0), depths)
def test_the_acceptance_that_is_needed_brings_the_tokens_or_there_is_none(
    tokens: float, d: int
) -> None:
    needs = acceptance_for(tokens, d)
    if tokens > 1 + d:
        assert needs is None
    else:
        assert needs is not None
        assert expected_tokens(needs, d) == pytest.approx(tokens, rel=1e-6)


def test_features_are_three_two_and_one_part_of_the_published_bytes() -> None:
    """Llama-8B with EAGLE-3: 24.6 KB raw, 8.2 KB after the projection, 4.2 KB in fp8."""
    sizes = features(4096, taps=3, linear=True)
    assert (sizes.raw, sizes.projected, sizes.fp8) == (24576, 8192, 4096 + 128)
    assert features(7168, taps=1, linear=False).projected == 14336
    assert features(4096, taps=0, linear=False).fp8 == 0


def test_a_round_sends_features_of_the_emitted_rows_and_takes_a_network_for_them() -> None:
    sent = round_bytes(8192, tokens=3.0, sessions=32, depth=4)
    assert sent == 32 * (8192 * 3 + 4 * 3 + 24 + 4 * 4 + 24)
    assert bits_a_second(sent, round_s=0.01) == 8 * sent / 0.01
    assert wire_s(sent, 0.001, 1e9) == pytest.approx(0.001 + sent / 1e9)


@given(st.integers(1, 30), st.integers(1, 64))
def test_deeper_blocks_never_draft_faster_and_one_pass_beats_a_series(d: int, m: int) -> None:
    known = mechanisms(LLAMA, MODELS["Llama-3.2-1B"])
    target = forward(LLAMA, H100, m, 0, 1024).total
    for mechanism in known.values():
        now = mechanism.draft_s(H100, m, d, 1024, target)
        assert mechanism.draft_s(H100, m, d + 1, 1024, target) >= now
        assert mechanism.draft_s(H100, m, 0, 1024, target) == 0.0
    if d >= 8 and m <= 4:
        assert known["dflash"].draft_s(H100, m, d, 1024, target) < known["mtp"].draft_s(
            H100, m, d, 1024, target
        )


def test_mechanisms_are_chosen_by_name_and_unknown_ones_named() -> None:
    known = mechanisms(LLAMA)
    assert "draft_model" not in known
    assert [m.name for m in chosen("eagle3, DFlash", known)] == ["eagle3", "dflash"]
    with pytest.raises(UnknownNameError, match="unknown mechanism 'medusa'; known: eagle3"):
        chosen("medusa", known)


def question(acceptance: float = 0.7, **other: object) -> Question:
    known = mechanisms(LLAMA, MODELS["Llama-3.2-1B"])
    fields = {"concurrencies": (1, 8, 32, 128, 256), **other}
    return Question(LLAMA, H100, H100, list(known.values()), acceptance=acceptance, **fields)


@given(st.floats(0.0, 0.9))
def test_the_best_d_gains_and_is_the_least_that_gains_so_much(acceptance: float) -> None:
    asked = question(acceptance)
    found = plan(asked)
    for mechanism in asked.mechanisms:
        for sequences in asked.concurrencies:
            pick = best(found.draftings, mechanism.name, sequences)
            mine = [
                d
                for d in found.draftings
                if (d.mechanism, d.sequences) == (mechanism.name, sequences)
            ]
            if pick is None:
                assert max(d.speedup for d in mine) <= 1.0
            else:
                assert pick.speedup >= 0.98 * max(d.speedup for d in mine)
                assert expected_tokens(acceptance, pick.depth) > pick.break_even


def test_nothing_accepted_is_standard_decode_everywhere() -> None:
    assert all(pool.depth == 0 for pool in plan(question(0.0)).pools)


def test_d_falls_as_the_batch_grows() -> None:
    found = plan(question())
    eagle = [pool.depth for pool in found.pools if pool.mechanism == "eagle3"]
    assert eagle[0] >= 4
    assert eagle == sorted(eagle, reverse=True)
    assert falls_at(found.pools, "eagle3") == 128
