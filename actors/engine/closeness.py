"""How far two ways to compute the same logits may be apart before one of them is wrong.

In bf16 the logits of two sound kernels differ by 1 to 2% of their norm (6% in random models of
eight layers), but a row now and then amplifies rounding tenfold (SmolLM2 on a CPU with AVX-512: a
row in seven of a text of special tokens is off by 0.3, the others by 0.008). What is wrong in a
kernel is wrong in most rows (0.175 where one was broken on purpose): so rows are compared one by
one and the third quartile of them decides.
"""

from __future__ import annotations

import torch

TOLERANCE = {torch.bfloat16: 0.1}
OTHERWISE = 1e-3
QUARTILE = 0.75
_STRIDE = 7919
"""A prime: neighbours in a vocabulary are of one kind, such as special tokens or single bytes."""


def probe_ids(count: int, vocab_size: int) -> list[int]:
    """A text to compare on: ids from all over the vocabulary."""
    return [(_STRIDE * i + 101) % vocab_size for i in range(count)]


def apart(ours: torch.Tensor, theirs: torch.Tensor) -> float:
    """Relative distance of two [rows, vocab], of the row at the third quartile. The first row sees
    itself alone and tells nothing of attention."""
    ours, theirs = ours[1:].float(), theirs[1:].float()
    off = (ours - theirs).norm(dim=-1) / theirs.norm(dim=-1).clamp(min=1e-6)
    return float(off.quantile(QUARTILE))


def tolerance(dtype: torch.dtype) -> float:
    """Of `apart`, for a model that computes in this type."""
    return TOLERANCE.get(dtype, OTHERWISE)
