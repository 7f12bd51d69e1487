"""The fleet's laws are the world's, with a thousand verifiers at once."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from policies.acceptance import Acceptance, survival, verified
from policies.simulate.fleet import Fleet
from policies.simulate.fleet_plan import Evidence, adaptive, counted, fixed, standard
from policies.simulate.fleet_pools import _ranks
from policies.simulate.policy import Fixed, Standard
from policies.simulate.scenario import Fault, Phase, Scenario
from policies.simulate.world import World
from tests.unit.policies.simulate.worlds import GPU, HEAD, scenario


def fleet(**change: object) -> Scenario:
    told = scenario(clients=60, duration_s=1.0)
    ways = {**told.ways, "head": replace(HEAD, drafters=4)}
    fields = {"verifiers": 12, "max_num_seqs": 8, "ways": ways, **change}
    return replace(told, **fields)  # type: ignore[arg-type]


def served(told: Scenario) -> Fleet:
    planner = adaptive(
        told.ways,
        lambda rows, n: GPU.step_s(rows, n, 0.0),
        rtt_s=told.wire.rtt_s,
        verifiers=told.verifiers,
    )
    return Fleet(told, GPU, planner, probes=True)


def test_every_token_of_a_fleet_is_a_rounds_own_or_an_accepted_draft() -> None:
    told = fleet()
    for planner in (standard, fixed("head", 4), fixed("suffix", 8)):
        account = Fleet(told, GPU, planner).run()
        assert account.tokens == account.rounds + account.accepted
        assert account.accepted <= account.drafted
        assert sum(account.tokens_at) == account.tokens
    assert Fleet(told, GPU, fixed("head", 4)).run() == Fleet(told, GPU, fixed("head", 4)).run()


def test_the_fleet_and_the_events_agree_on_the_same_world() -> None:
    """Within what their differences are worth: prompts in one step, no stale tails."""
    told = fleet(verifiers=4, max_num_seqs=16, phases=(Phase(0.0, {"chat": 16}),))
    for planner, policy in ((standard, Standard()), (fixed("head", 3), Fixed("head", 3))):
        many = Fleet(told, GPU, planner).run().tokens
        exact = World(told, GPU, lambda i, p=policy: p).run().tokens
        assert many == pytest.approx(exact, rel=0.12)


def test_the_fleets_policy_beats_standard_decode_and_loses_nothing_to_dead_drafters() -> None:
    told = fleet(duration_s=2.5)
    plain = Fleet(told, GPU, standard).run().tokens
    assert served(told).run().tokens > 1.3 * plain
    faults = tuple(Fault(way, "useless") for way in told.ways)
    assert served(replace(told, faults=faults)).run().tokens > 0.97 * plain


def test_too_few_drafters_are_left_alone_and_not_besieged() -> None:
    """Twelve verifiers cannot share one drafter that takes longer than their steps: drafting by it
    would set the pace, and the table knows."""
    slow = {"head": replace(HEAD, drafters=1, base_s=0.01, token_s=0.003)}
    told = fleet(ways=slow)
    plain = Fleet(told, GPU, standard).run().tokens
    assert Fleet(told, GPU, fixed("head", 4)).run().tokens < 0.8 * plain
    account = served(told).run()
    assert account.tokens > 0.95 * plain


def test_a_dead_drafters_verifiers_move_to_the_others() -> None:
    told = fleet(faults=(Fault("head", "dead", 0.0, drafter=0),), duration_s=2.0)
    account = Fleet(told, GPU, fixed("head", 4)).run()
    assert account.late > 0
    half = len(account.depth_at) // 2
    assert account.depth_at[-1] > account.depth_at[0]
    assert min(account.depth_at[half:]) > 3.0


def test_counts_of_many_blocks_are_those_of_each_block_added_up() -> None:
    one_by_one = Acceptance()
    for accepted in (0, 2, 4, 1):
        one_by_one = verified(one_by_one, 4, accepted, memory=float("inf"))
    together = counted(Acceptance(), [4, 3, 2, 1], [3, 2, 1, 1], keep=0.5)
    assert survival(together, 4) == survival(one_by_one, 4)
    assert counted(together, [], [], 0.5).decided == (2.0, 1.5, 1.0, 0.5)


def test_nothing_known_and_nothing_to_gain_is_standard_decode() -> None:
    known = Evidence({("chat", "head"): counted(Acceptance(), [99.0], [60.0], 1.0)})
    planner = adaptive({"head": HEAD}, lambda rows, n: float(rows), rtt_s=0.0, verifiers=1)
    assert planner(Evidence(), "chat", 8).depth == 0
    assert planner(known, "chat", 8).depth == 0
    assert planner(known, "poem", 8).depth == 0
    free = adaptive({"head": HEAD}, lambda rows, n: 1.0, rtt_s=0.0, verifiers=1)
    assert free(Evidence(), "chat", 8).depth == 0
    assert free(known, "chat", 8).depth == HEAD.max_depth


def test_places_among_equals_count_from_nought() -> None:
    assert _ranks(np.array([3, 3, 5, 7, 7, 7])).tolist() == [0, 1, 0, 0, 1, 2]
    assert _ranks(np.array([], dtype=np.int64)).tolist() == []
