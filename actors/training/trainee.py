"""What the training loop asks of a mechanism."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import nn

from actors.training.examples import Example


@dataclass(frozen=True, slots=True)
class StepLoss:
    """loss: to be minimised. positions: answer positions that were drafted from. figures: for the
    eye, by name."""

    loss: torch.Tensor
    positions: int
    figures: dict[str, float] = field(default_factory=dict)


class Trainee(Protocol):
    """One mechanism's modules, the same that draft, with their loss."""

    mechanism: str
    depth: int
    """Drafts of one block."""

    @property
    def module(self) -> nn.Module: ...

    def set_scale(self, scale: torch.Tensor) -> None:
        """Features come divided by `scale` from now on (`actors.training.scale`)."""
        ...

    def loss(self, examples: Sequence[Example], rng: random.Random) -> StepLoss: ...

    def right(self, examples: Sequence[Example]) -> list[list[int]]:
        """For each anchor of each answer, how many greedy drafts in a row are right."""
        ...

    def export(self) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
        """Tensors by their public names, and what config.json says of the architecture."""
        ...
