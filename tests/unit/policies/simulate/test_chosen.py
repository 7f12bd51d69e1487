"""The served policy, driven by the simulator, keeps its promises there."""

from __future__ import annotations

from cluster.simulate.legs import served
from policies.simulate.policy import Fixed, Standard
from policies.simulate.scenario import Fault
from policies.simulate.world import World
from tests.unit.policies.simulate.worlds import GPU, play, scenario


def policy_run(faults: tuple[Fault, ...] = (), clients: int = 2) -> World:
    told = scenario(clients=clients, faults=faults, duration_s=4.0)
    return play(told, served(told, GPU))


def test_the_policy_is_near_the_best_fixed_choice_and_above_standard_decode() -> None:
    told = scenario(clients=2, duration_s=4.0)
    fixed = [
        play(told, Fixed(way, depth)).account.tokens
        for way, depth in (("head", 2), ("head", 4), ("suffix", 4))
    ]
    account = policy_run().account
    assert account.tokens == account.rounds + account.accepted
    assert account.tokens > 0.93 * max(fixed)
    assert account.tokens > 1.2 * play(told, Standard()).account.tokens


def test_with_drafters_that_are_useless_slow_or_dead_it_is_as_fast_as_standard_decode() -> None:
    for kind in ("useless", "slow", "dead"):
        faults = tuple(Fault(way, kind, factor=40.0) for way in ("head", "suffix"))
        told = scenario(clients=2, faults=faults, duration_s=4.0)
        plain = play(told, Standard()).account.tokens
        assert policy_run(faults).account.tokens > 0.96 * plain, kind
