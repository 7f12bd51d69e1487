"""Small worlds for the simulator's tests: a GPU-like target, where drafted rows are nearly free."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from policies.simulate.costs import Linear
from policies.simulate.policy import Fixed, Policy
from policies.simulate.scenario import Cohort, Fault, Phase, Scenario, Way
from policies.simulate.world import World

GPU = Linear(7.093e-3, 21e-6, 39.3e-9)
"""Llama-3.1-8B on an H100 as fitted in arXiv 2601.11580."""

HEAD = Way("remote", {"chat": (0.7, 0.65)}, max_depth=6, base_s=0.5e-3, token_s=0.4e-3)
SUFFIX = Way("colocated", {"chat": (0.6, 0.7)}, {"chat": 0.5}, max_depth=8, base_s=0.1e-3)


def scenario(
    *, clients: int = 4, faults: Sequence[Fault] = (), seed: int = 0, duration_s: float = 1.5
) -> Scenario:
    return Scenario(
        duration_s=duration_s,
        cohorts={"chat": Cohort(prompt=40, output=60, spread=0.4)},
        ways={"head": replace(HEAD, drafters=2), "suffix": SUFFIX},
        phases=(Phase(0.0, {"chat": clients}),),
        faults=tuple(faults),
        seed=seed,
    )


def play(told: Scenario, policy: type[Policy] | Policy) -> World:
    """A world that has been run; a policy object serves the one verifier, a class each its own."""
    world = World(told, GPU, lambda i: policy() if isinstance(policy, type) else policy)
    world.run()
    return world


def head(depth: int = 4) -> Fixed:
    return Fixed("head", depth)
