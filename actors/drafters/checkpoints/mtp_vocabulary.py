"""A draft vocabulary beside an MTP head, in the form that EAGLE-3's checkpoints have: `d2t` holds
offsets (target id = row + d2t[row]), `t2d` says which tokens are among them, `lm_head.weight` is
the reduced head. Where the file has none, the head is those rows of the target's, which is what MTP
heads are trained with.

No public MTP format has one; other loaders ignore these tensors or refuse the file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from actors.drafters.checkpoints.files import Checkpoint, refusal
from actors.drafters.checkpoints.shape import agrees, draft_ids

HEAD = "lm_head.weight"
MAPS = ("d2t", "t2d")


@dataclass(frozen=True, slots=True)
class Reduced:
    """ids: of the target, int64 [draft vocabulary]. own: whether the file has the head's rows."""

    ids: torch.Tensor
    own: bool

    def head(self, hidden: int) -> Mapping[str, tuple[int, ...]]:
        """The shape of its head by name, where the file has one."""
        return {HEAD: (len(self.ids), hidden)} if self.own else {}


def reduced(checkpoint: Checkpoint, vocab: int) -> Reduced | None:
    """None where a file has no `d2t`. vocab: the target's, 0 unknown. Raises DrafterLoadError."""
    shapes = checkpoint.shapes
    if "d2t" not in shapes:
        if "t2d" in shapes:
            raise refusal("there is a t2d and no d2t: which row is which token is not said")
        return None
    rows = shapes["d2t"][0] if len(shapes["d2t"]) == 1 else 0
    if not rows:
        raise refusal(f"d2t has shape {list(shapes['d2t'])}, not one row of integers")
    agrees(checkpoint.config, "draft_vocab_size", rows)
    ids = draft_ids(checkpoint, "d2t", rows, vocab, "t2d" if "t2d" in shapes else None)
    return Reduced(ids, HEAD in shapes)
