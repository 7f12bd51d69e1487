"""One forward's rows: flat and packed, each sequence a segment of its own length.

A segment's rows are the sequence's tokens that have no KV yet (prefill: many; decode: the anchor
alone) followed by its block. So requests with D = 0, 3, 1, 4 and a prefill chunk share a forward.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

from actors.contracts import Draft
from actors.engine.kv import BlockTable
from actors.engine.sequence import Sequence


@dataclass(frozen=True, slots=True)
class Segment:
    """Rows of one sequence: tokens kv_len … kv_len+count-1 of it, then `draft`.

    decides: True when the rows reach the newest committed token, so that the segment's last
    1 + len(draft) rows decide tokens; False for an inner chunk of a prefill.
    """

    sequence: Sequence
    count: int
    draft: Draft | None = None

    @property
    def block(self) -> tuple[int, ...]:
        return self.draft.tokens if self.draft else ()

    @property
    def rows(self) -> int:
        return self.count + len(self.block)

    @property
    def decides(self) -> bool:
        return self.sequence.kv_len + self.count == len(self.sequence.tokens)


@dataclass(frozen=True, slots=True)
class AttentionSpan:
    """What attention needs of a segment: query rows start … stop-1 see tokens 0 … kv_stop-1."""

    start: int
    stop: int
    kv_stop: int
    table: BlockTable


@dataclass(slots=True)
class StepBatch:
    """Packed tensors of one forward. ids, positions: [1, rows]; slots: [rows]; keep: rows whose
    logits are wanted."""

    ids: torch.Tensor
    positions: torch.Tensor
    slots: torch.Tensor
    keep: torch.Tensor
    spans: tuple[AttentionSpan, ...]
    masks: dict[tuple[int, int | None], torch.Tensor] = field(default_factory=dict)

    def mask(self, index: int, window: int | None) -> torch.Tensor:
        """Boolean mask [rows, kv_stop] of span `index`: causal, and within `window` if any.
        Built once a step, shared by all layers."""
        key = (index, window)
        if key not in self.masks:
            span = self.spans[index]
            rows = span.stop - span.start
            seen = torch.arange(span.kv_stop, device=self.ids.device)[None, :]
            own = torch.arange(span.kv_stop - rows, span.kv_stop, device=self.ids.device)[:, None]
            mask = seen <= own
            if window is not None:
                mask &= seen > own - window
            self.masks[key] = mask
        return self.masks[key]


def pack(segments: list[Segment], device: str) -> StepBatch:
    """Lay the segments' rows one after another."""
    ids: list[int] = []
    positions: list[int] = []
    keep: list[int] = []
    slots: list[torch.Tensor] = []
    spans: list[AttentionSpan] = []
    for segment in segments:
        seq, start = segment.sequence, len(ids)
        ids.extend(seq.tokens[seq.kv_len : seq.kv_len + segment.count])
        ids.extend(segment.block)
        stop = seq.kv_len + segment.rows
        positions.extend(range(seq.kv_len, stop))
        slots.append(seq.table.slots(seq.kv_len, stop))
        spans.append(AttentionSpan(start, len(ids), stop, seq.table))
        if segment.decides:
            keep.extend(range(start + segment.count - 1, len(ids)))
    return StepBatch(
        ids=torch.tensor([ids], dtype=torch.long, device=device),
        positions=torch.tensor([positions], dtype=torch.long, device=device),
        slots=torch.cat(slots),
        keep=torch.tensor(keep, dtype=torch.long, device=device),
        spans=tuple(spans),
    )
