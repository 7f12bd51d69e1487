"""The engine and the simulator verify the same rows wherever they know the same of blocks."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from actors.contracts import Draft
from actors.engine.speculation import MEMORY, WEIGHT, Speculation
from policies.acceptance import Acceptance, survival, verified
from policies.choice_rows import Offer, rows
from policies.cost import profiled, seconds

NAMES = ("a", "b", "c")
rounds = st.tuples(st.sampled_from(NAMES), st.integers(1, 6), st.integers(0, 6))
curves = st.lists(st.floats(0.0, 0.5), min_size=5, max_size=5).map(
    lambda rises: profiled([(1 + 8 * i, 1.0 + sum(rises[: i + 1])) for i in range(5)])
)
offered = st.dictionaries(st.sampled_from(NAMES), st.tuples(st.integers(1, 6), st.integers(0, 6)))


def draft(size: int) -> Draft:
    return Draft(tuple(range(size)), "any", remote=True)


@given(
    st.lists(rounds, max_size=30),
    curves,
    offered,
    st.integers(0, 8),
    st.integers(0, 24),
    st.floats(0.0, 1.0),
)
def test_rows_are_chosen_by_one_rule_for_engine_and_simulator(
    history: list[tuple[str, int, int]],
    curve,
    blocks: dict[str, tuple[int, int]],
    more: int,
    prompts: int,
    spent_s: float,
) -> None:
    """blocks: size and the most that may be verified, by request."""
    engine = Speculation(curve)
    own, everyone = dict.fromkeys(NAMES, Acceptance()), Acceptance()
    for name, size, right in history:
        right = min(right, size)
        engine.select({name: draft(size)}, 1)
        engine.settle(name, [*range(right), 99])
        own[name] = verified(own[name], size, right, MEMORY)
        everyone = verified(everyone, size, right)
    writers = max(1, len(blocks) + more)
    chosen = engine.select(
        {name: draft(size) for name, (size, _) in blocks.items()},
        writers,
        prompts,
        most={name: most for name, (_, most) in blocks.items()},
        spent_s=spent_s,
    )
    found = rows(
        [
            Offer(name, size, most, survive=survival(own[name], size, everyone, WEIGHT))
            for name, (size, most) in blocks.items()
        ],
        {name: size for name, (size, _) in blocks.items()},
        {},
        writers,
        lambda count: seconds(curve, int(count)),
        rule="coupled",
        spent_s=spent_s,
        other_rows=prompts,
    )
    depths = {name: row.depth for name, row in zip(blocks, found, strict=True) if row.depth}
    assert {name: len(kept.tokens) for name, kept in chosen.items()} == depths
