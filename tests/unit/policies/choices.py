"""Batches for tests of the choice: two arms, costs by a line, a staircase or any rising table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hypothesis import strategies as st

from policies.choice import Arm, Batch, Costs, Group
from policies.estimate import Outlook

SUFFIX = Arm("suffix", remote=False, max_depth=4)
LEARNED = Arm("learned", remote=True, max_depth=4)


def line(first: float, each: float) -> Callable[[float], float]:
    return lambda rows: first + each * rows


def make_costs(
    step_s: Callable[[float], float] = line(0.010, 0.0005), learned_s: float = 0.002
) -> Costs:
    return Costs(step_s, lambda arm, sessions, depth: 0.0 if arm == SUFFIX else learned_s)


def geometric(rate: float, depth: int = 4, reach: float = 1.0) -> Outlook:
    return Outlook(tuple(rate**k for k in range(1, depth + 1)), (reach,) * depth)


def make_batch(
    rates: dict[Arm, float], clients: int = 1, costs: Costs | None = None, limit: int = 4
) -> Batch:
    views = {"default": {arm: geometric(rate) for arm, rate in rates.items()}}
    return Batch([Group("default", clients, limit)], views, costs or make_costs())


@dataclass(frozen=True)
class Prospect:
    batch: Batch
    hopeful: Batch


def falling(depth: int = 4) -> st.SearchStrategy[tuple[float, ...]]:
    return st.lists(st.floats(0, 1), min_size=depth, max_size=depth).map(
        lambda values: tuple(sorted(values, reverse=True))
    )


outlooks = st.builds(Outlook, falling(), falling())
groups = st.lists(
    st.builds(Group, st.sampled_from(["a", "b", "c"]), st.integers(1, 8), st.integers(0, 4)),
    min_size=1,
    max_size=4,
)
views = st.fixed_dictionaries(
    {c: st.fixed_dictionaries({SUFFIX: outlooks, LEARNED: outlooks}) for c in ("a", "b", "c")}
)
steps = st.lists(st.floats(0.0001, 0.1), min_size=200, max_size=200)


def rising(increments: Sequence[float]) -> Callable[[float], float]:
    """A table from increments, straight between whole rows."""
    table = [sum(increments[: i + 1]) for i in range(len(increments))]

    def step_s(rows: float) -> float:
        low = min(int(rows), len(table) - 2)
        return table[low] + (rows - low) * (table[low + 1] - table[low])

    return step_s
