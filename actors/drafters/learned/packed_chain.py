"""EAGLE-3's greedy chains as one call of the compiled library for a whole block.

Between its steps a chain is a few dozen small operations, which cost as much as the kernels when
the caches are the target's. Blocks that need more than the largest logit (noise, penalties, laws)
are drafted step by step as ever; the drafts are the same.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import torch
from torch import nn

from actors.drafters.learned.base import Chain
from actors.drafters.learned.eagle_model import EagleModel
from actors.drafters.learned.ends import Ends
from actors.drafters.learned.packed_layer import PackedLayer, integers
from actors.drafters.learned.packed_norm import PackedNorm
from actors.engine.native import library
from actors.engine.native.linear import PackedLinear

TABLES = (torch.bfloat16, torch.float32)
"""What embeddings may be kept in."""


class PackedChain:
    """ids: target ids of the head's rows, None where they are the ids; choices: rows that may be
    drafted."""

    def __init__(
        self, model: EagleModel, ends: Ends, choices: int, ids: torch.Tensor | None
    ) -> None:
        norm: nn.Module = model.norm
        head: nn.Module = ends.head
        assert isinstance(norm, PackedNorm)
        assert isinstance(head, PackedLinear)
        self._rope, self._window = model.rope, model.spec.layer.window
        self._layers = [layer for layer in model.layers if isinstance(layer, PackedLayer)]
        self._crew = head.crew
        self._structures = (library.DraftLayer * len(self._layers))(
            *(layer.structure for layer in self._layers)
        )
        self._kept = (norm, head, ends, ids)  # addresses point into them
        table = ends.table
        self._chain = library.Chain(
            count=len(self._layers),
            layers=self._structures,
            recycles_normed=int(model.spec.norm_output),
            norm=norm.weight.data_ptr(),
            epsilon=norm.eps,
            head=ctypes.pointer(head.structure),
            choices=choices,
            ids=None if ids is None else ids.data_ptr(),
            rounded=int(table.dtype is torch.bfloat16),
            tokens=table.shape[0],
            embedding=table.data_ptr(),
        )

    def draft(
        self, chains: Sequence[Chain], states: Sequence[torch.Tensor]
    ) -> tuple[list[list[int]], list[list[float]]]:
        """states: at each chain's last absorbed row, [1, hidden]. Drafts, as many as each chain's
        depth, and their logits, NaN where a logit was not a number."""
        depth, count = max(chain.depth for chain in chains), len(chains)
        starts = torch.tensor([chain.session.done for chain in chains])
        cosines, sines = self._rope(starts[:, None] + torch.arange(depth))
        for structure in self._structures:
            structure.turned = 2 * cosines.shape[-1]
        held = torch.cat(list(states))
        drafts = torch.empty(count, depth, dtype=torch.int64)
        tops = torch.empty(count, depth)
        rooms = [
            layer.room(chain.session.kv, chain.session.done + chain.depth)
            for layer in self._layers
            for chain in chains
        ]
        depths = integers([chain.depth for chain in chains])
        offsets = integers([chain.session.done for chain in chains])
        capacities = integers([keys.shape[1] for keys, _ in rooms])
        keys = integers([keys.data_ptr() for keys, _ in rooms])
        values = integers([values.data_ptr() for _, values in rooms])
        step = library.ChainStep(
            chains=count,
            depth=depth,
            depths=ctypes.addressof(depths),
            states=held.data_ptr(),
            cosines=cosines.data_ptr(),
            sines=sines.data_ptr(),
            window=self._window or 0,
            offsets=ctypes.addressof(offsets),
            capacities=ctypes.addressof(capacities),
            keys=ctypes.addressof(keys),
            values=ctypes.addressof(values),
            drafts=drafts.data_ptr(),
            tops=tops.data_ptr(),
        )
        self._crew.chain(self._chain, step)
        return drafts.tolist(), tops.tolist()


def packed_chain(
    model: EagleModel, ends: Ends, vocab: int, ids: torch.Tensor | None
) -> PackedChain | None:
    """None where a part is torch's still, or drafts come in parallel. vocab: the target's."""
    norm: nn.Module = model.norm
    head: nn.Module = ends.head
    packed = isinstance(norm, PackedNorm) and isinstance(head, PackedLinear)
    if model.spec.slots or not packed or ends.table.dtype not in TABLES:
        return None
    if not all(isinstance(layer, PackedLayer) for layer in model.layers):
        return None
    rows = ends.head.out_features
    if ids is None:
        return PackedChain(model, ends, min(rows, vocab), None)
    return PackedChain(model, ends, rows, ids.contiguous())
