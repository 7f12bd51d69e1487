"""How many drafted rows a step verifies, and whose: the batch's tokens per second at their most.

Row k of a request's block brings S(k) tokens, the chance that its first k tokens are all accepted,
and makes the step longer. Rows are taken in falling order of S over the whole batch; of all the
prefixes of that order the one with the most expected tokens per second wins. Costs come in steps,
so every prefix is looked at, and standard decode wins unless it is beaten by a margin: what is
estimated must not cost what is certain (law L4).

Beside prompts a step takes long, and one more token in it would seem cheap. But all that waits for
the step waits for its drafted rows too, so they are held against the step without the prompts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

MARGIN = 0.03
"""By so much the expected rate must exceed standard decode's."""


def allot(
    survivals: Sequence[Sequence[float]],
    writers: int,
    step_s: Callable[[int], float],
    *,
    other_rows: int = 0,
    spent_s: float = 0.0,
    margin: float = MARGIN,
) -> list[int]:
    """Drafted rows for each block, 0 for all where standard decode is as good.

    survivals: by block, S(1), S(2), … (never rising). writers: requests that write one token each
    without any draft. step_s: seconds by rows. other_rows: of prompts, in the same step. spent_s:
    on drafting and the wire; it is spent, and lengthens every choice alike.
    """
    beside_s = step_s(writers + other_rows) - step_s(writers)

    def took_s(rows: int) -> float:
        return step_s(rows + other_rows) - beside_s + spent_s

    order = sorted(
        (
            (chance, k, block)
            for block, chances in enumerate(survivals)
            for k, chance in _valid(chances)
        ),
        key=lambda c: (-c[0], c[1]),
    )
    tokens = float(writers)
    best, taken = (1.0 + margin) * tokens / took_s(writers), 0
    for count, (chance, _, _) in enumerate(order, 1):
        tokens += chance
        rate = tokens / took_s(writers + count)
        if rate > best:
            best, taken = rate, count
    depths = [0] * len(survivals)
    for _, _, block in order[:taken]:
        depths[block] += 1
    return depths


def pays(
    rate: float, depth: int, writers: int, step_s: Callable[[int], float], margin: float = MARGIN
) -> bool:
    """Whether `allot` would take any row of blocks of `depth` tokens for all writers, each token
    accepted at this rate."""
    tokens, rows, chance = float(writers), writers, 1.0
    best = (1.0 + margin) * tokens / step_s(writers)
    for _ in range(depth):
        chance *= rate
        for _ in range(writers):
            tokens, rows = tokens + chance, rows + 1
            if tokens > best * step_s(rows):
                return True
    return False


def _valid(chances: Sequence[float]) -> list[tuple[int, float]]:
    """(k, S(k)), never rising, so that no row is taken without the rows before it."""
    least, result = 1.0, []
    for k, chance in enumerate(chances):
        least = min(least, max(chance, 0.0))
        result.append((k, least))
    return result
