"""How rows attend while training: the same rules as when drafting, for all anchors at once.

Whatever follows an anchor sees the context before it and some rows of its own. A sequence is one
product over its context, whatever its number of anchors, and no mask between anchors exists.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True)
class AnchorSpan:
    """Anchors start … stop-1 of a batch belong to one sequence, whose context rows are
    row … row + rows - 1; anchors: their positions, int64 [stop - start]."""

    start: int
    stop: int
    row: int
    rows: int
    anchors: torch.Tensor


KeyValue = tuple[torch.Tensor, torch.Tensor]


class Blocks:
    """Blocks of several sequences: each sees the context before its anchor and all of itself, or
    itself up to a slot when `causal`.

    context: for each layer keys and values [context rows, kv_heads, dim].
    """

    def __init__(
        self, spans: Sequence[AnchorSpan], context: Sequence[KeyValue], *, causal: bool = False
    ) -> None:
        self._spans = spans
        self._context = context
        self._causal = causal

    def __call__(
        self, layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor
    ) -> torch.Tensor:
        """q [anchors, slots, heads, dim], k and v [anchors, slots, kv_heads, dim]."""
        later = None
        if self._causal:
            later = torch.ones(q.shape[1], k.shape[1], dtype=torch.bool, device=q.device).triu(1)
        return over_context(self._spans, q, self._context[layer], (k, v), later)


class Chain:
    """One row after each anchor, step by step: it sees the context before its anchor, and of the
    rows of earlier steps those of its own anchor (training-time test, arXiv 2503.01840). The
    first step's own row is the last of the context."""

    def __init__(self, spans: Sequence[AnchorSpan], context: KeyValue) -> None:
        self._spans = spans
        self._context = context
        self._own: list[KeyValue] = []
        self._first = True

    def __call__(
        self, layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor
    ) -> torch.Tensor:
        """q [anchors, heads, dim], k and v [anchors, kv_heads, dim]; called once a step."""
        if not self._first:
            self._own.append((k, v))
        self._first = False
        own = None
        if self._own:
            own = (
                torch.stack([k for k, _ in self._own], 1),
                torch.stack([v for _, v in self._own], 1),
            )
        return over_context(self._spans, q[:, None], self._context, own)[:, 0]

    def keep(self, kept: torch.Tensor) -> None:
        """Go on with the anchors where `kept` [anchors] is true."""
        self._own = [(k[kept], v[kept]) for k, v in self._own]
        start, spans = 0, list[AnchorSpan]()
        for span in self._spans:
            anchors = span.anchors[kept[span.start : span.stop]]
            stop = start + len(anchors)
            if stop > start:
                spans.append(AnchorSpan(start, stop, span.row, span.rows, anchors))
            start = stop
        self._spans = spans


def over_context(
    spans: Sequence[AnchorSpan],
    q: torch.Tensor,
    context: KeyValue,
    own: KeyValue | None,
    unseen: torch.Tensor | None = None,
) -> torch.Tensor:
    """q [anchors, slots, heads, dim] over the context before each anchor, and its own keys and
    values [anchors, n, kv_heads, dim] but for what is `unseen` [slots, n]."""
    keys, values = context
    out: list[torch.Tensor] = []
    for span in spans:
        rows, mine = slice(span.row, span.row + span.rows), slice(span.start, span.stop)
        before = (keys[rows], values[rows])
        after = None if own is None else (own[0][mine], own[1][mine])
        out.append(_sequence(span.anchors, q[mine], before, after, unseen))
    return torch.cat(out)


def _sequence(
    anchors: torch.Tensor,
    q: torch.Tensor,
    context: KeyValue,
    own: KeyValue | None,
    unseen: torch.Tensor | None,
) -> torch.Tensor:
    n, slots, heads, dim = q.shape
    keys, values = context
    total, kv = keys.shape[0], keys.shape[1]
    group = heads // kv
    q = q.view(n, slots, kv, group, dim) * dim**-0.5
    wide = q.permute(2, 0, 1, 3, 4).reshape(kv, n * slots * group, dim)
    scores = torch.bmm(wide, keys.permute(1, 2, 0)).view(kv, n, slots * group, total)
    after = torch.arange(total, device=q.device)[None] >= anchors[:, None]
    scores = scores.masked_fill(after[None, :, None], float("-inf"))
    if own is not None:
        mine = torch.einsum("nskgd,ntkd->knsgt", q, own[0])
        if unseen is not None:
            mine = mine.masked_fill(unseen[None, None, :, None], float("-inf"))
        scores = torch.cat((scores, mine.reshape(kv, n, slots * group, -1)), -1)
    weights = torch.softmax(scores, -1)
    out = torch.bmm(
        weights[..., :total].reshape(kv, n * slots * group, total), values.transpose(0, 1)
    ).view(kv, n, slots, group, dim)
    if own is not None:
        mine = weights[..., total:].view(kv, n, slots, group, -1)
        out = out + torch.einsum("knsgt,ntkd->knsgd", mine, own[1])
    return out.permute(1, 2, 0, 3, 4).reshape(n, slots, heads, dim)
