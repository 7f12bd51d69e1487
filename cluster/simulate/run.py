"""All legs of a study, one after the other, each in the same world."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

from cluster.simulate import legs
from cluster.simulate.study import Study
from policies.simulate.account import Totals, quantile
from policies.simulate.fleet import Fleet
from policies.simulate.scenario import Scenario
from policies.simulate.world import World


@dataclass(frozen=True, slots=True)
class Outcome:
    """A leg's account. Rates are tokens a second, latencies seconds (of finished requests; None
    where none finished). waited: share of the verifiers' time. busy: by remote way, share of the
    drafters' time. tokens_at and depth_at: over time, in equal slices. cpu_s: what simulating took.
    """

    leg: str
    goodput: float
    phases: tuple[float, ...]
    acceptance_length: float
    depth: float
    accepted: float
    late: int
    waited: float
    arrived: int
    finished: int
    ttft_p50_s: float | None
    ttft_p95_s: float | None
    tpot_p50_s: float | None
    tpot_p95_s: float | None
    busy: dict[str, float]
    tokens_at: tuple[float, ...]
    depth_at: tuple[float, ...]
    ways_at: dict[str, tuple[int, ...]]
    cpu_s: float


def run(study: Study, seed: int | None = None) -> Iterator[Outcome]:
    """Raises LegError before anything is simulated."""
    if seed is not None:
        study = replace(study, scenario=replace(study.scenario, seed=seed))
    wanted = study.legs or legs.all_legs(study.scenario)
    legs.check(study.scenario, wanted, fleet=study.fleet)
    for leg in wanted:
        began = time.process_time()
        outcome = _fleet(study, leg) if study.fleet else _events(study, leg)
        yield replace(outcome, cpu_s=time.process_time() - began)


def _events(study: Study, leg: str) -> Outcome:
    scenario = study.scenario
    world = World(scenario, study.costs, legs.event_policy(scenario, study.costs, leg))
    a = world.run()
    used = sorted({way for part in a.bins for way in part.ways})
    return _outcome(
        scenario,
        leg,
        a,
        [part.tokens for part in a.bins],
        busy=world.busy_shares(),
        depth_at=tuple(part.depth for part in a.bins),
        ways_at={way: tuple(part.ways.get(way, 0) for part in a.bins) for way in used},
    )


def _fleet(study: Study, leg: str) -> Outcome:
    scenario = study.scenario
    planner = legs.fleet_planner(scenario, study.costs, leg)
    a = Fleet(scenario, study.costs, planner, probes=leg == legs.POLICY).run()
    return _outcome(
        scenario, leg, a, a.tokens_at, busy=a.busy, depth_at=tuple(a.depth_at), ways_at={}
    )


def _outcome(
    scenario: Scenario,
    leg: str,
    a: Totals,
    tokens: list[int],
    *,
    busy: dict[str, float],
    depth_at: tuple[float, ...],
    ways_at: dict[str, tuple[int, ...]],
) -> Outcome:
    """tokens: in equal slices of the time."""
    return Outcome(
        leg,
        a.goodput,
        _phases(scenario, tokens),
        a.acceptance_length,
        a.drafted / max(a.rounds, 1),
        a.accepted / max(a.drafted, 1),
        a.late,
        a.waited_s / scenario.duration_s / scenario.verifiers,
        a.arrived,
        a.finished,
        quantile(a.ttft_s, 0.5),
        quantile(a.ttft_s, 0.95),
        quantile(a.tpot_s, 0.5),
        quantile(a.tpot_s, 0.95),
        busy,
        tuple(n * len(tokens) / scenario.duration_s for n in tokens),
        depth_at,
        ways_at,
        0.0,
    )


def _phases(scenario: Scenario, tokens: list[int]) -> tuple[float, ...]:
    """Tokens a second in each phase, to the width of a slice."""
    width = scenario.duration_s / len(tokens)
    starts = [phase.start_s for phase in scenario.phases]
    rates = []
    for start_s, end_s in zip(starts, [*starts[1:], scenario.duration_s], strict=True):
        part = tokens[round(start_s / width) : round(end_s / width)]
        rates.append(sum(part) / (width * len(part)) if part else 0.0)
    return tuple(rates)
