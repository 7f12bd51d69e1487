"""An exponential average of the weights: what is validated and shipped. With it a constant
learning rate ends as well as one that is lowered, and a run may end at any moment."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn


class Averaged:
    """decay: of the average; a young one forgets faster."""

    def __init__(self, module: nn.Module, decay: float) -> None:
        self._module = module
        self._decay = decay
        self.steps = 0
        self.weights = {n: p.detach().clone() for n, p in module.named_parameters()}

    @torch.no_grad()
    def update(self) -> None:
        self.steps += 1
        decay = min(self._decay, (1 + self.steps) / (10 + self.steps))
        own = dict(self._module.named_parameters())
        torch._foreach_lerp_(
            list(self.weights.values()), [own[n] for n in self.weights], 1.0 - decay
        )

    @contextmanager
    def swapped_in(self) -> Iterator[None]:
        """Inside, the module has the averaged weights."""
        self._swap()
        try:
            yield
        finally:
            self._swap()

    @torch.no_grad()
    def _swap(self) -> None:
        for name, parameter in self._module.named_parameters():
            held = self.weights[name]
            kept = parameter.detach().clone()
            parameter.copy_(held)
            held.copy_(kept)
