"""What changes a row's logits before a token is chosen, per row (S17).

The order is vLLM's: logit_bias, then repetition, frequency and presence penalty, then the
min_tokens mask (-inf absorbs the others, so its place is free). Row i of a block sees the history
plus block[:i]: nothing is applied to the first row alone, nothing to all rows alike.

Repetition counts prompt and output, frequency and presence the output alone. Ids outside the row
are left out: a drafter's vocabulary may be smaller than the target's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import torch

from actors.sampling.params import SamplingParams


def upcast(row: torch.Tensor) -> torch.Tensor:
    """fp64 stays, everything else becomes fp32, before any division (S20)."""
    return row if row.dtype == torch.float64 else row.float()


def must_process(params: SamplingParams, output_len: int) -> bool:
    """False when the raw row decides; and then for every later row of the request too."""
    return params.reads_history or bool(params.logit_bias) or output_len < params.min_tokens


class Processors:
    """One request's processors, walked from row to row. tokens: prompt and output so far;
    the first prompt_len are the prompt's. output_len: tokens of the output before the row."""

    def __init__(
        self,
        params: SamplingParams,
        tokens: Sequence[int],
        prompt_len: int,
        eos_ids: frozenset[int],
        output_len: int,
    ) -> None:
        self._params = params
        self._output_len = output_len
        self._stops = sorted(eos_ids | params.stop_token_ids)
        self._seen: set[int] = set()
        self._counts: Counter[int] = Counter()
        if params.reads_history:
            self._seen.update(tokens)
            self._counts.update(tokens[prompt_len:])

    @property
    def active(self) -> bool:
        """False when the next row's raw logits decide."""
        return must_process(self._params, self._output_len)

    def advance(self, token: int) -> None:
        """The row's token is accepted: the next row sees it."""
        self._output_len += 1
        if self._params.reads_history:
            self._seen.add(token)
            self._counts[token] += 1

    def __call__(self, row: torch.Tensor) -> torch.Tensor:
        """The processed row [V], fp32 or fp64; the argument itself is never written to."""
        if not self.active:
            return upcast(row)
        out = row.to(torch.float64 if row.dtype == torch.float64 else torch.float32, copy=True)
        self._bias(out)
        if self._params.reads_history:
            self._penalize(out)
        if self._output_len < self._params.min_tokens:
            out[_ids(self._stops, out)] = -torch.inf
        return out

    def _bias(self, out: torch.Tensor) -> None:
        biases = {t: b for t, b in self._params.logit_bias if 0 <= t < len(out)}
        if biases:
            ids = torch.tensor(list(biases), device=out.device)
            out[ids] += torch.tensor(list(biases.values()), dtype=out.dtype, device=out.device)

    def _penalize(self, out: torch.Tensor) -> None:
        params = self._params
        if params.repetition_penalty != 1.0:
            ids = _ids(self._seen, out)
            values = out[ids]
            factor = params.repetition_penalty
            out[ids] = torch.where(values > 0, values / factor, values * factor)
        if params.frequency_penalty != 0.0 or params.presence_penalty != 0.0:
            ids = _ids(self._counts, out)
            counts = [self._counts[t] for t in ids.tolist()]
            times = torch.tensor(counts, dtype=out.dtype, device=out.device)
            out[ids] -= params.frequency_penalty * times
            out[ids] -= params.presence_penalty


def _ids(tokens: Iterable[int], row: torch.Tensor) -> torch.Tensor:
    """The ids that the row has, as an index."""
    kept = [t for t in tokens if 0 <= t < len(row)]
    return torch.tensor(kept, dtype=torch.int64, device=row.device)
