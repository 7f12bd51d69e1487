"""What is compared in a simulation: standard decode, fixed choices, the served policy.

`standard`; `WAY:D`, one way and one D for everybody; `policy`, what a server decides by;
`engine:WAY`, the engine's choice of rows with one way, not in a fleet.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from policies import estimate_cost, estimate_draft
from policies.adaptive import Adaptive
from policies.choice import Arm
from policies.cost import profiled
from policies.simulate import fleet_plan
from policies.simulate.chosen import Chosen
from policies.simulate.costs import Costs
from policies.simulate.policy import Fixed, Policy, Standard
from policies.simulate.scenario import Scenario

STANDARD, POLICY, ENGINE = "standard", "policy", "engine"
ROWS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512)
"""At which a simulated server profiles its target before it serves."""
_DEPTHS = (1, 2, 4, 8, 16)


class LegError(ValueError):
    """A leg that this scenario does not have."""


def all_legs(scenario: Scenario) -> tuple[str, ...]:
    """Standard decode, every way at 1, 2, 4, … up to its depth, and the policy."""
    fixed = [
        f"{name}:{depth}"
        for name, way in scenario.ways.items()
        for depth in sorted({*(d for d in _DEPTHS if d < way.max_depth), way.max_depth})
    ]
    return STANDARD, *fixed, POLICY


def check(scenario: Scenario, legs: tuple[str, ...], *, fleet: bool = False) -> None:
    """Raises LegError that names what there is."""
    for leg in legs:
        if leg not in (STANDARD, POLICY) and (fleet or _engine(scenario, leg) is None):
            _parsed(scenario, leg)


def event_policy(scenario: Scenario, costs: Costs, leg: str) -> Callable[[int], Policy]:
    """For `policies.simulate.world`. Raises LegError."""
    if leg == STANDARD:
        return lambda verifier: Standard()
    if leg == POLICY:
        return lambda verifier: served(scenario, costs)
    if (name := _engine(scenario, leg)) is not None:
        from cluster.simulate.engine_leg import EngineLeg

        cost = profiled([(rows, costs.step_s(rows, 1, 0.0)) for rows in ROWS])
        return lambda verifier: EngineLeg(name, cost)
    way, depth = _parsed(scenario, leg)
    return lambda verifier: Fixed(way, depth)


def fleet_planner(scenario: Scenario, costs: Costs, leg: str) -> fleet_plan.Planner:
    """For `policies.simulate.fleet`. Raises LegError."""
    if leg == STANDARD:
        return fleet_plan.standard
    if leg == POLICY:
        middle = sum(c.prompt + c.output / 2 for c in scenario.cohorts.values())
        context = middle / len(scenario.cohorts)
        return fleet_plan.adaptive(
            scenario.ways,
            lambda rows, sequences: costs.step_s(rows, sequences, context * sequences),
            rtt_s=scenario.wire.rtt_s,
            verifiers=scenario.verifiers,
        )
    way, depth = _parsed(scenario, leg)
    return fleet_plan.fixed(way, depth)


def served(scenario: Scenario, costs: Costs) -> Policy:
    """The policy a verifier has, from a profile as one is taken before serving."""
    steps = estimate_cost.profiled(
        [estimate_cost.Sample(rows, costs.step_s(rows, 1, 0.0)) for rows in ROWS]
    )
    drafts = {
        Arm(name, way.remote, way.max_depth): estimate_draft.profiled(
            [
                (sessions, depth, way.block_s(sessions, depth))
                for sessions in (1, 8, 32)
                for depth in range(1, way.max_depth + 1)
            ],
            wire_s=scenario.wire.rtt_s,
        )
        for name, way in scenario.ways.items()
    }
    deepest = max((way.max_depth for way in scenario.ways.values()), default=0)
    policy = Adaptive(steps, drafts, depth=deepest)
    return Chosen(policy, lambda rows: costs.step_s(rows, 1, 0.0))


def _engine(scenario: Scenario, leg: str) -> str | None:
    """The way of `engine:WAY`."""
    kind, _, name = leg.partition(":")
    return name if kind == ENGINE and name in scenario.ways else None


def _parsed(scenario: Scenario, leg: str) -> tuple[str, int]:
    name, _, depth = leg.partition(":")
    ways: Mapping[str, object] = scenario.ways
    if name in ways and depth.isdecimal() and int(depth) > 0:
        return name, int(depth)
    engines = (f"{ENGINE}:{way}" for way in ways)
    known = ", ".join([STANDARD, *(f"{way}:D" for way in ways), POLICY, *engines])
    raise LegError(f"unknown leg {leg!r}; known: {known}")
