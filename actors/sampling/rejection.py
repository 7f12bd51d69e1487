"""How many drafted tokens stay, by the ratio of the target's law p to the draft's law q.

Two rules. `token_wise` accepts x with min(1, p(x)/q(x)) and stops at the first that fails
(Leviathan et al., arXiv 2211.17192; Chen et al., arXiv 2302.01318). `block_wise` decides about the
block as one (Sun et al., arXiv 2403.10444): it accepts at least as many tokens on average, and
just as many where q is one-hot. After m tokens what the target adds is drawn from its own row, or
from what q left of it: RowLaw.residual(q, scale).

Both are pure but for `passes`, asked once for each test with its chance, tests being independent.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from actors.sampling.law import TokenLaw
from actors.sampling.row_law import RowLaw

Rows = Callable[[int], RowLaw | None]
"""Row i decides the token after block[:i]; None where it holds no law. Asked in order."""
Passes = Callable[[int, float], bool]
"""(position in the block, chance) -> whether the test is passed."""


def token_wise(
    rows: Rows, block: Sequence[int], laws: Sequence[TokenLaw], passes: Passes
) -> tuple[int, float]:
    """(accepted, scale of the residual). Rows past the first failure are never asked for."""
    for i, (token, law) in enumerate(zip(block, laws, strict=True)):
        row = rows(i)
        if row is None or not passes(i, min(1.0, _ratio(row, law, token))):
            return i, 1.0
    return len(block), 1.0


def block_wise(
    rows: Rows, block: Sequence[int], laws: Sequence[TokenLaw], passes: Passes
) -> tuple[int, float]:
    """(accepted, scale of the residual): the longest prefix whose test is passed, whatever became
    of shorter ones. scales[i] is the chance that at least i tokens stay, given the first i."""
    scales = [1.0]
    for i, (token, law) in enumerate(zip(block, laws, strict=True)):
        row = rows(i)
        if row is None or scales[-1] == 0.0:
            break
        scales.append(min(1.0, scales[-1] * _ratio(row, law, token)))
    last = len(scales) - 1
    for i in range(last, 0, -1):
        if passes(i - 1, scales[i] if i == last else _threshold(rows(i), laws[i], scales[i])):
            return i, scales[i]
    return 0, 1.0


def _ratio(row: RowLaw, law: TokenLaw, token: int) -> float:
    q = law.of(token)
    return float(row.of(np.array([token], np.int64))[0]) / q if q > 0.0 else 0.0


def _threshold(row: RowLaw | None, law: TokenLaw, scale: float) -> float:
    """Chance to stop here for good, given that no longer prefix has passed."""
    assert row is not None  # every row up to the last scale has been read
    rest = left_over(row, law, scale)
    return rest / (rest + 1.0 - scale) if rest > 0.0 or scale < 1.0 else 1.0


def left_over(row: RowLaw, law: TokenLaw, scale: float) -> float:
    """The sum of max(scale · p − q, 0) over the vocabulary, for the price of the ids of q."""
    p = row.of(law.ids)
    elsewhere = max(0.0, 1.0 - float(p.sum()))
    return float(np.maximum(scale * p - law.masses, 0.0).sum()) + scale * elsewhere
