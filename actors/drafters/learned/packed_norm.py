"""RMS norms as one call each of the compiled library, where nothing is trained."""

from __future__ import annotations

import torch
from torch import nn
from typing_extensions import override

from actors.drafters.learned.blocks import RMSNorm
from actors.engine.native.crew import Crew

LANES = 8


class PackedNorm(nn.Module):
    """Stands for an `RMSNorm`: x [..., size] -> float32 [..., size]."""

    def __init__(self, norm: RMSNorm, crew: Crew) -> None:
        super().__init__()
        self._crew = crew
        self.eps = norm.eps
        self.weight = nn.Buffer(multiplier(norm), persistent=False)

    @override
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows = x.reshape(-1, x.shape[-1]).float().contiguous()
        out = torch.empty_like(rows)
        self._crew.norm(rows, self.weight, self.eps, out)
        return out.view(x.shape)


def multiplier(norm: RMSNorm) -> torch.Tensor:
    """What a normed row is multiplied by, float32 [size]."""
    return (norm.weight.detach().float() + norm.offset).contiguous()


def pack_norms(module: nn.Module, crew: Crew) -> None:
    """Put packed norms in the place of those below `module` whose size the library takes."""
    for name, child in list(module.named_children()):
        if type(child) is not RMSNorm:
            pack_norms(child, crew)
        elif child.weight.shape[0] % LANES == 0:
            setattr(module, name, PackedNorm(child, crew))
