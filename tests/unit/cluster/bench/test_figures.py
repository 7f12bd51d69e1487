"""Figures follow from what was delivered, exactly."""

from __future__ import annotations

import random

import pytest

from cluster.bench.pareto import Point, front
from cluster.bench.positions import between, parse, rates, total
from cluster.bench.sample import Recorder
from cluster.bench.split import split_of
from cluster.bench.stats import Pair, ratio, spread
from cluster.bench.summary import acceptance_length, summarise
from cluster.sighting import Sighting
from pilotfish import Delta, Speculation, Usage
from tests.unit.cluster.bench.fakes import (
    REMOTE,
    SETTING,
    STANDARD,
    make_attempt,
    make_sample,
)

# 1 token at 1 s, then commits of 3, 1 and 2 tokens at 2, 4 and 5 s.
BURSTS = [(1.0, 1, 0), (2.0, 3, 2), (4.0, 1, 0), (5.0, 2, 1)]


def test_latencies_of_a_request_count_from_when_it_was_due() -> None:
    sample = make_sample(BURSTS, due_s=0.25)
    assert sample.ttft_s == 0.75
    assert (sample.decode_s, sample.decode_tokens, sample.tokens) == (4.0, 6, 7)
    assert sample.tpot_s == 4.0 / 6
    assert make_sample([(1.0, 1, 0)]).tpot_s is None


def test_tokens_of_one_commit_are_one_gap_and_zeros() -> None:
    gaps = make_sample(BURSTS).gaps_s
    assert gaps == [1.0, 0.0, 0.0, 2.0, 1.0, 0.0]
    assert sum(gaps) == make_sample(BURSTS).decode_s


def test_acceptance_length_is_tokens_a_forward_pass_after_the_first_token() -> None:
    assert acceptance_length([make_sample(BURSTS)]) == 6 / 3
    assert acceptance_length([make_sample([(1.0, 1, 0), (2.0, 1, 0)])]) == 1.0
    assert acceptance_length([make_sample([(1.0, 1, 0)])]) is None
    both = [make_sample(BURSTS), make_sample([(1.0, 1, 0), (2.0, 1, 0)])]
    assert acceptance_length(both) == 7 / 4


def test_an_answer_without_an_end_is_a_failure_and_no_figure() -> None:
    recorder = Recorder("p", "qa", 0.0)
    assert recorder.sample(1.0).error
    recorder.take(Delta("x", (1,)), 1.0)
    assert recorder.sample(2.0).error
    usage, counts = Usage(3, 2), Speculation(1, 4, 1, 1, ("late",))
    last = Delta("y", (2,), 1, finish_reason="stop", usage=usage, speculation=counts)
    recorder.take(last, 2.0)
    sample = recorder.sample(2.0)
    assert (sample.error, sample.tokens, sample.prompt_tokens, sample.drafted) == ("", 2, 3, 4)
    recorder.ids.append(3)
    assert recorder.sample(2.0).output != sample.output


def test_quantiles_of_nothing_are_absent() -> None:
    assert spread([]) is None
    found = spread([float(i) for i in range(101)])
    assert found is not None
    assert (found.p50, found.p95, found.p99, found.count) == (50.0, 95.0, 99.0, 101)


# -------------------------------------------------------------------------------- ratios


def test_a_ratio_is_of_rates_over_all_work_and_never_a_mean_of_ratios() -> None:
    found = ratio([Pair(10, 1.0, 10, 2.0), Pair(10, 9.0, 10, 8.0)])
    assert found is not None
    assert found.value == 1.0
    assert (found.low, found.high, found.pairs) == (None, None, 2)
    assert ratio([]) is None
    assert ratio([Pair(10, 0.0, 10, 1.0)]) is None


def test_equal_pairs_have_no_spread_and_the_interval_is_seeded() -> None:
    found = ratio([Pair(6, 1.0, 3, 1.0)] * 5)
    assert found is not None
    assert (found.low, found.value, found.high) == (2.0, 2.0, 2.0)
    pairs = [Pair(10 + i, 1.0, 10, 1.0) for i in range(8)]
    assert ratio(pairs, seed=1) == ratio(pairs, seed=1)


def test_the_interval_covers_the_truth_as_often_as_it_says() -> None:
    draw, covered = random.Random(0), 0
    for seed in range(200):
        pairs = [Pair(100, draw.uniform(0.5, 1.5), 100, draw.uniform(1.0, 3.0)) for _ in range(40)]
        found = ratio(pairs, seed)
        assert found is not None
        covered += bool(found.low and found.high and found.low <= 2.0 <= found.high)
    assert covered >= 180  # 190 in the mean; fewer than 180 once in a thousand times


# -------------------------------------------------------------------------------- positions

METRICS = """
# TYPE vllm:spec_decode_num_accepted_tokens_per_pos counter
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="m",position="0"} 6.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="m",position="1"} 1.0
# TYPE pilotfish:spec_decode_num_draft_tokens_per_pos counter
pilotfish:spec_decode_num_draft_tokens_per_pos_total{engine="0",model_name="m",position="0"} 8.0
pilotfish:spec_decode_num_draft_tokens_per_pos_total{engine="0",model_name="m",position="1"} 4.0
pilotfish:spec_decode_num_draft_tokens_per_pos_total{engine="0",model_name="m",position="2"} 0.0
"""


def test_a_position_is_rated_by_what_was_drafted_at_it() -> None:
    after = parse(METRICS)
    assert after == {0: (8, 6), 1: (4, 1), 2: (0, 0)}
    added = between({0: (4, 4)}, after)
    assert added == {0: (4, 2), 1: (4, 1)}
    assert [(p.position, p.rate) for p in rates(total([added, added]))] == [(0, 0.5), (1, 0.25)]


# -------------------------------------------------------------------------------- time split


def test_the_parts_of_a_step_add_up_to_it() -> None:
    after = Sighting(
        steps=10,
        busy_s=1.0,
        forward_s=0.5,
        sample_s=0.1,
        wait_s=0.2,
        blocks=8,
        draft_s=0.08,
        block_s=0.32,
    )
    found = split_of([make_attempt(REMOTE, [make_sample(BURSTS)], before=Sighting(), after=after)])
    assert found is not None
    assert found.step_ms == pytest.approx(100.0)
    assert (found.draft_ms, found.wire_ms) == (pytest.approx(5.0), pytest.approx(15.0))
    parts = (found.draft_ms, found.wire_ms, found.verify_ms, found.sample_ms, found.rest_ms)
    assert sum(parts) == pytest.approx(found.step_ms)
    assert found.block_draft_ms == pytest.approx(10.0)
    assert found.block_wire_ms == pytest.approx(30.0)


def test_an_engine_that_took_no_step_has_no_split() -> None:
    seen = Sighting(steps=3)
    attempt = make_attempt(REMOTE, [make_sample(BURSTS)], before=seen, after=seen)
    assert split_of([attempt]) is None


# -------------------------------------------------------------------------------- a leg


def test_a_leg_is_paired_with_standard_decode_of_the_same_run_and_prompt() -> None:
    slow = [(1.0, 1, 0), *((1.0 + i, 1, 0) for i in range(1, 7))]
    base = [make_attempt(STANDARD, [make_sample(slow, output="same")], run=r) for r in range(3)]
    ours = [make_attempt(REMOTE, [make_sample(BURSTS, output="same")], run=r) for r in range(3)]
    found = summarise(REMOTE, SETTING, ours, base, devices=2, keeps=False)
    assert found.decode_rate == 6 / 4
    assert found.ratio_decode is not None
    assert (found.ratio_decode.value, found.ratio_decode.pairs) == (1.5, 3)
    assert found.output_rate == 7 / 5
    assert found.output_rate_per_device == 7 / 10
    assert found.ratio_output is not None
    assert found.ratio_output.value == pytest.approx((7 / 5) / (7 / 7))
    assert (found.identical, found.compared) == (3, 3)
    assert found.acceptance_length == 2.0
    standard = summarise(STANDARD, SETTING, base, base, devices=1, keeps=False)
    assert standard.ratio_decode is None
    assert standard.acceptance_length == 1.0


def test_failed_requests_are_counted_and_are_in_no_latency() -> None:
    failed = make_sample([], error="UnavailableError: gone", end_s=9.0)
    attempt = make_attempt(REMOTE, [make_sample(BURSTS), failed])
    found = summarise(REMOTE, SETTING, [attempt], [], devices=1, keeps=False)
    assert (found.runs[0].requests, found.runs[0].failed) == (2, 1)
    assert found.ttft is not None
    assert found.ttft.count == 1
    assert found.ratio_decode is None


def test_the_front_is_what_no_other_point_beats_in_both() -> None:
    def at(x: float, y: float) -> Point:
        return Point(f"{x}/{y}", "1 client", 0.0, x, y)

    given = [at(1, 9), at(2, 7), at(2, 8), at(3, 3), at(1, 1), at(3, 3)]
    assert [(p.interactivity, p.throughput) for p in front(given)] == [
        (1, 9),
        (2, 8),
        (3, 3),
        (3, 3),
    ]
    assert front([]) == []
