"""What verifiers' loads ask for, alone and in a closed loop with the replicas they bring."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.autoscale import Limits, Memory, steadied
from policies.autoscale_capacity import Capacity, capacity
from policies.autoscale_verifiers import VerifierLoad, VerifierTargets, demand, strongest
from policies.choice import Arm, Batch, Costs, Group, choose
from policies.estimate import Outlook

BASE_S, ROW_S = 0.020, 0.001
ITL_S = 0.050
TARGETS = VerifierTargets(itl_s=ITL_S, ttft_s=1.0, kv_usage=0.8)


def step_s(rows: float) -> float:
    return BASE_S + ROW_S * rows


CAPACITY = capacity(step_s, itl_s=ITL_S, most=64, prompt_rows=512)
BASE = VerifierLoad(
    most_requests=64,
    batch=CAPACITY.batch,
    most_tokens_s=CAPACITY.tokens_s,
    most_prompt_tokens_s=CAPACITY.prompt_tokens_s,
)


def decoding(requests: float, al: float = 1.0) -> VerifierLoad:
    """A verifier with so many requests, which write `al` tokens in a step of standard decode."""
    return replace(BASE, running=requests, tokens_s=al * requests / step_s(requests))


def test_capacity_is_the_largest_batch_whose_plain_step_is_in_time() -> None:
    assert Capacity(30.0, 30 / step_s(30), 512 / step_s(512)) == CAPACITY
    assert capacity(step_s, itl_s=None, most=64, prompt_rows=1).batch == 64


def test_a_target_that_one_request_misses_is_not_met_by_more_verifiers() -> None:
    assert capacity(step_s, itl_s=0.001, most=64, prompt_rows=1).batch == 1


@given(st.floats(0.001, 0.2), st.integers(1, 300))
def test_a_looser_target_never_makes_a_smaller_batch(itl_s: float, most: int) -> None:
    tight = capacity(step_s, itl_s=itl_s, most=most, prompt_rows=1)
    loose = capacity(step_s, itl_s=1.5 * itl_s, most=most, prompt_rows=1)
    assert 1 <= tight.batch <= loose.batch <= most
    assert tight.batch == 1 or step_s(tight.batch) <= itl_s


def test_a_verifier_is_added_where_even_standard_decode_misses_the_target() -> None:
    assert demand([decoding(30)], TARGETS)[1].add == 1
    assert demand([decoding(31)], TARGETS)[1].add == 2
    assert demand([decoding(31), decoding(31)], TARGETS)[1].add == 3


def test_none_is_added_while_drafts_keep_tokens_in_time() -> None:
    assert demand([decoding(50, al=2.0)], TARGETS)[1].add == 1


def test_draft_lengths_fall_to_zero_before_a_verifier_is_added() -> None:
    """D is chosen by the policy's own choice, at every size of the batch: in none is a verifier
    added while drafted rows make the step that misses the target."""
    arm, cap = Arm("head", max_depth=4), 8
    outlook = Outlook((0.8, 0.64, 0.5, 0.4), (1.0, 1.0, 1.0, 1.0))
    steep = Costs(lambda rows: 0.010 + 0.004 * rows, lambda *_: 0.001)
    target_s = steep.step_s(cap)
    depths: list[int] = []
    for n in range(1, 2 * cap):
        batch = Batch([Group("c", n, 4)], {"c": {arm: outlook}}, steep)
        picks, rate = choose(batch, {})
        depths.append(picks["c"].depth)
        load = VerifierLoad(running=n, tokens_s=rate, most_requests=64, batch=cap)
        added = demand([load], VerifierTargets(itl_s=target_s))[1].add > 1
        assert added == (n > cap and n / rate > target_s)
        assert not added or picks["c"].depth == 0
    assert depths[0] > 1
    assert depths == sorted(depths, reverse=True)
    assert depths[-1] == 0


def test_prompts_that_cannot_be_read_in_time_ask_for_more() -> None:
    read_s = CAPACITY.prompt_tokens_s
    load = replace(decoding(4), waiting=6, waiting_tokens=2.5 * read_s)
    worth, look = demand([load], TARGETS)
    assert (look.add, strongest(worth)) == (3, "ttft")


def test_there_are_never_more_verifiers_than_requests() -> None:
    load = replace(BASE, waiting=1, waiting_tokens=100 * CAPACITY.prompt_tokens_s)
    assert demand([load], TARGETS)[1].add == 1


def test_a_full_cache_asks_for_more() -> None:
    load = replace(decoding(10), kv_wanted_share=0.9)
    worth, look = demand([load], TARGETS)
    assert (look.add, strongest(worth)) == (2, "kv")
    assert demand([replace(load, kv_wanted_share=0.79)], TARGETS)[1].add == 1


def test_a_queue_behind_full_places_asks_for_more() -> None:
    load = replace(decoding(30), most_requests=32, waiting=10)
    worth, look = demand([load], VerifierTargets())
    assert (look.add, strongest(worth)) == (2, "requests")


def test_one_that_has_said_nothing_of_its_steps_is_judged_by_its_places() -> None:
    load = VerifierLoad(running=40, most_requests=16)
    assert demand([load, VerifierLoad()], TARGETS)[1].add == 3


def test_nobody_asks_for_anything_where_nothing_is_to_do() -> None:
    worth, look = demand([BASE, BASE], TARGETS)
    assert (look.add, look.keep, strongest(worth)) == (0, 0, "idle")


loads = st.builds(
    VerifierLoad,
    running=st.floats(0, 100),
    waiting=st.floats(0, 100),
    waiting_tokens=st.floats(0, 1e5),
    kv_wanted_share=st.floats(0, 3),
    tokens_s=st.floats(0, 1e4),
    prompt_tokens_s=st.floats(0, 1e5),
    most_requests=st.floats(1, 100),
    batch=st.floats(0, 100),
    most_tokens_s=st.floats(0, 1e4),
    most_prompt_tokens_s=st.floats(0, 1e5),
)


@given(st.lists(loads, min_size=1, max_size=5), st.floats(0, 50))
def test_more_that_waits_never_asks_for_fewer(of: list[VerifierLoad], more: float) -> None:
    before = demand(of, TARGETS)[1]
    busier = [replace(of[0], waiting=of[0].waiting + more), *of[1:]]
    after = demand(busier, TARGETS)[1]
    assert before.add <= after.add
    assert before.keep <= after.keep


# ------------------------------------------------------------------ with the replicas they bring


class Fleet:
    """A fluid of requests that arrive at a rate and write `length` tokens each, spread evenly over
    verifiers whose steps cost as above; a replica takes 20 s to start."""

    START_S = 20

    def __init__(self, al: float = 1.0, length: float = 100.0) -> None:
        self.al, self.length = al, length
        self.requests = 0.0
        self.count = 1
        self.ready: list[int] = [0]
        self.now_s = 0
        self.memory = Memory()
        self.changes: list[tuple[int, int]] = []
        self.limits = Limits(1, 32, 5.0, 60.0, 60.0)

    def second(self, arrivals: float) -> None:
        self.now_s += 1
        up = sum(at <= self.now_s for at in self.ready[: self.count])
        running = min(self.requests / up, BASE.most_requests)
        tokens_s = self.al * running / step_s(running) if running else 0.0
        done = min(self.requests, up * tokens_s / self.length)
        self.requests += arrivals - done
        load = replace(
            BASE,
            running=running,
            waiting=max(0.0, self.requests / up - running),
            tokens_s=tokens_s,
        )
        before = self.count
        self.count, self.memory = steadied(
            self.memory, demand([load] * up, TARGETS)[1], before, float(self.now_s), self.limits
        )
        if self.count != before:
            self.changes.append((self.now_s, self.count - before))
            new = self.count - len(self.ready)
            self.ready = self.ready[: self.count] + [self.now_s + self.START_S] * max(new, 0)

    def run(self, seconds: int, arrivals: float) -> list[int]:
        """Directions of the changes meanwhile."""
        self.changes.clear()
        for _ in range(seconds):
            self.second(arrivals)
        return [1 if by > 0 else -1 for _, by in self.changes]


def turns(directions: list[int]) -> int:
    return sum(a != b for a, b in itertools.pairwise(directions))


@pytest.mark.parametrize("arrivals", [0.5, 5.0, 6.1, 11.9, 17.7, 40.0])
def test_under_a_constant_load_the_count_comes_to_rest_and_tokens_are_in_time(
    arrivals: float,
) -> None:
    fleet = Fleet()
    directions = fleet.run(600, arrivals)
    assert turns(directions) <= 1  # down again goes what was added against the queue of the start
    assert fleet.run(1200, arrivals) == []
    assert step_s(fleet.requests / fleet.count) <= ITL_S


@settings(max_examples=25, deadline=None)
@given(st.floats(0.1, 60.0), st.floats(0.1, 60.0), st.sampled_from([1.0, 1.7, 3.0]))
def test_a_load_that_steps_up_and_down_is_followed_without_flapping(
    one: float, other: float, al: float
) -> None:
    fleet = Fleet(al)
    for arrivals in (one, other, one):
        directions = fleet.run(600, arrivals)
        assert turns(directions) <= 1
        assert fleet.run(300, arrivals) == []


def test_idleness_brings_the_least_number_back() -> None:
    fleet = Fleet()
    fleet.run(300, 40.0)
    assert fleet.count > 5
    fleet.run(300, 0.0)
    assert fleet.count == 1
