"""One span under `rejection` or `block`: its rows' laws, the tests, the target's own token."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from actors.sampling import dice
from actors.sampling.choose import BadLogits
from actors.sampling.dice import Place, Use
from actors.sampling.law import TokenLaw, one_hot
from actors.sampling.params import SamplingParams
from actors.sampling.processors import Processors
from actors.sampling.rejection import block_wise, token_wise
from actors.sampling.row_law import RowLaw, row_law
from actors.sampling.rules import Rule


def weigh(
    logits: torch.Tensor,
    block: Sequence[int],
    laws: Sequence[TokenLaw] | None,
    process: Processors,
    params: SamplingParams,
    base: int,
    rule: Rule,
) -> list[int]:
    """The tokens a round writes: accepted drafts, then one of the target's own.

    logits: rows [len(block) + 1, V], raw. laws: of each drafted token; None takes them as fixed by
    what precedes them. base: committed tokens before the block.

    A row that holds no law raises BadLogits as row 0; further on it ends the block before it, and
    where all up to it is accepted nothing is added. Whether a token is tested never depends on
    the token, so the law of what is written is the target's here too.
    """
    laws = laws if laws is not None else [one_hot(token) for token in block]
    rows = _Rows(logits, block, process, params, base)

    def passes(i: int, chance: float) -> bool:
        return dice.passes(chance, Place(params.seed, base, base + i))

    rows.first()
    verify = token_wise if rule == "rejection" else block_wise
    accepted, scale = verify(rows, block, laws, passes)
    row = rows(accepted)
    if row is None:
        return list(block[:accepted])
    whole = accepted == len(block)
    weights = row.weights if whole else row.residual(laws[accepted], scale)
    own = dice.pick(weights, Place(params.seed, base, base + accepted), Use.TARGET)
    return [*block[:accepted], own]


class _Rows:
    """The laws of a span's rows, each read once and when it is first asked for."""

    def __init__(
        self,
        logits: torch.Tensor,
        block: Sequence[int],
        process: Processors,
        params: SamplingParams,
        base: int,
    ) -> None:
        self._logits, self._block = logits, block
        self._process, self._params, self._base = process, params, base
        self._read: list[RowLaw | None] = []

    def first(self) -> None:
        """Raises BadLogits when row 0 holds no law."""
        self._read.append(self._law(0))

    def __call__(self, i: int) -> RowLaw | None:
        while len(self._read) <= i:
            self._process.advance(self._block[len(self._read) - 1])
            try:
                self._read.append(self._law(len(self._read)))
            except BadLogits:
                self._read.append(None)
        return self._read[i]

    def _law(self, i: int) -> RowLaw:
        return row_law(self._logits[i], self._process, self._params, self._base + i)
