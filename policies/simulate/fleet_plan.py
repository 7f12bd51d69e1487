"""What a fleet of verifiers is told: by cohort and batch size, which way and how deep.

The served design in the large: verifiers count what came of blocks, a planner adds the counts up
and publishes a table now and then, and each verifier looks its row up in every step. The table is
computed by the served functions (policies.acceptance, policies.budget, policies.waiting).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from policies.acceptance import Acceptance, survival
from policies.budget import allot
from policies.simulate.scenario import Way
from policies.waiting import worth_s

StepSeconds = Callable[[int, int], float]
"""(rows, sequences) -> seconds of a step."""


ENOUGH_BLOCKS = 16.0
"""No evidence, no speculation."""


@dataclass(frozen=True, slots=True)
class Entry:
    """way "" and depth 0 are standard decode. patience_s: how long a step waits for the block."""

    way: str = ""
    depth: int = 0
    patience_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Evidence:
    """counts by (cohort, way). exposed_s: by way, what a step has waited for blocks, lately."""

    counts: Mapping[tuple[str, str], Acceptance] = field(default_factory=dict)
    exposed_s: Mapping[str, float] = field(default_factory=dict)


Planner = Callable[[Evidence, str, int], Entry]
"""Of a cohort in a batch of so many."""


def counted(
    state: Acceptance, decided: Sequence[float], accepted: Sequence[float], keep: float
) -> Acceptance:
    """Counts of many blocks at once: by position, how many were decided and accepted. keep: the
    share of the older counts that is kept."""
    size = max(len(decided), len(state.decided))

    def added(old: Sequence[float], new: Sequence[float]) -> tuple[float, ...]:
        padded = [*old, *[0.0] * (size - len(old))]
        return tuple(o * keep + n for o, n in zip(padded, new, strict=False))

    more = [0.0] * (size - len(decided))
    return Acceptance(
        added(state.decided, [*decided, *more]), added(state.accepted, [*accepted, *more])
    )


def standard(evidence: Evidence, cohort: str, writers: int) -> Entry:
    """Never drafts."""
    return Entry()


def fixed(way: str, depth: int, patience_s: float = 0.05) -> Planner:
    """One choice for everybody."""
    return lambda evidence, cohort, writers: Entry(way, depth, patience_s)


def adaptive(
    ways: Mapping[str, Way], step_s: StepSeconds, *, rtt_s: float, verifiers: int
) -> Planner:
    """The way and depth with the most expected tokens a second in a batch of like requests.

    A drafter that serves K verifiers gives each a block every K blocks' time at the soonest, so
    rounds are never taken to be shorter than that: else all would ask it at once, find it busy, and
    leave it idle by turns."""

    def plan(evidence: Evidence, cohort: str, writers: int) -> Entry:
        plain_s = step_s(writers, writers)
        best, most = Entry(), writers / plain_s
        for name, way in ways.items():
            if cohort not in way.acceptance:
                continue
            counts = evidence.counts.get((cohort, name), Acceptance())
            if not counts.decided or counts.decided[0] < ENOUGH_BLOCKS:
                continue
            chances = survival(counts, way.max_depth)
            live_s, shared = evidence.exposed_s.get(name, 0.0), verifiers / way.drafters

            def round_s(
                rows: int, way: Way = way, live_s: float = live_s, shared: float = shared
            ) -> float:
                if rows <= writers:
                    return plain_s
                block_s = way.block_s(writers, -(-(rows - writers) // writers))
                if not way.remote:
                    return block_s + step_s(rows, writers)
                exposed_s = max(live_s, rtt_s + block_s)
                return max(exposed_s + step_s(rows, writers), shared * block_s)

            depth = max(allot([chances] * writers, writers, round_s))
            rate = writers * (1.0 + sum(chances[:depth])) / round_s(writers * (1 + depth))
            if depth and rate > most:
                wait_s = worth_s(1.0, plain_s, chances[:depth])
                best, most = Entry(name, depth, wait_s), rate
        return best

    return plan


def probing(entry: Entry, probe: Entry | None) -> Entry:
    """Where nothing is drafted, a probe keeps the evidence alive."""
    return probe if probe is not None and not entry.depth else entry
