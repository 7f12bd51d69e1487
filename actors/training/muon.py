"""Muon on blocks of rows: a matrix's momentum is brought near the closest orthogonal one, so that
no direction of it drowns the others (K. Jordan, "Muon: an optimizer for hidden layers in neural
networks", 2024; scaled to AdamW's steps as in arXiv 2502.16982).

Blocks have as many rows as a head, which costs a sixth of whole matrices. torch's own Muon is for
whole ones in bf16, which a CPU without it computes slowly.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from typing_extensions import override

ROWS = 64
_STEPS = 5
_A, _B, _C = 3.4445, -4.7750, 2.0315
_RMS = 0.2
"""Of an update's numbers: what AdamW's are."""


class BlockMuon(torch.optim.Optimizer):
    """matrices and vectors: parameter groups; of the first momentum, orthogonal updates and
    decay, of the second AdamW without decay.

    State as AdamW's, so that checkpoints hold either: `exp_avg`, and for vectors `exp_avg_sq`."""

    def __init__(
        self,
        matrices: dict[str, Any],
        vectors: dict[str, Any],
        lr: float,
        momentum: float = 0.95,
        betas: tuple[float, float] = (0.9, 0.95),
    ) -> None:
        groups = [{**matrices, "orthogonal": True}, {**vectors, "orthogonal": False}]
        super().__init__(
            groups, {"lr": lr, "momentum": momentum, "betas": betas, "weight_decay": 0.0}
        )

    @torch.no_grad()
    @override
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            update = _matrix if group["orthogonal"] else _vector
            for parameter in group["params"]:
                if parameter.grad is not None:
                    update(parameter, parameter.grad, self.state[parameter], group)


def _matrix(
    parameter: torch.Tensor, grad: torch.Tensor, state: dict[str, Any], group: dict[str, Any]
) -> None:
    if not state:
        state["exp_avg"] = torch.zeros_like(parameter)
    momentum = group["momentum"]
    average = state["exp_avg"].lerp_(grad, 1 - momentum)
    wanted = grad.lerp(average, momentum)  # Nesterov's
    whole = wanted.shape[0] // ROWS * ROWS
    parts = list[torch.Tensor]()
    if whole:
        parts.append(orthogonal(wanted[:whole].view(-1, ROWS, wanted.shape[1])).flatten(0, 1))
    if whole < wanted.shape[0]:
        parts.append(orthogonal(wanted[None, whole:])[0])
    update = torch.cat(parts)
    scale = _RMS * max(min(ROWS, parameter.shape[0]), parameter.shape[1]) ** 0.5
    parameter.mul_(1 - group["lr"] * group["weight_decay"]).add_(update, alpha=-group["lr"] * scale)


def orthogonal(blocks: torch.Tensor) -> torch.Tensor:
    """[blocks, rows, columns] -> the same with singular values near one, by Newton and Schulz."""
    tall = blocks.shape[1] > blocks.shape[2]
    x = blocks.transpose(1, 2) if tall else blocks
    x = x / x.flatten(1).norm(dim=1).clamp(min=1e-12)[:, None, None]
    for _ in range(_STEPS):
        gram = x @ x.transpose(1, 2)
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=_B, alpha=_C), x, beta=_A)
    return x.transpose(1, 2) if tall else x


def _vector(
    parameter: torch.Tensor, grad: torch.Tensor, state: dict[str, Any], group: dict[str, Any]
) -> None:
    if not state:
        state |= {"step": torch.zeros(()), "exp_avg": torch.zeros_like(parameter)}
        state["exp_avg_sq"] = torch.zeros_like(parameter)
    state["step"] += 1
    first, second = group["betas"]
    mean = state["exp_avg"].lerp_(grad, 1 - first)
    square = state["exp_avg_sq"].lerp_(grad.square(), 1 - second)
    count = float(state["step"])
    size = (square / (1 - second**count)).sqrt_().add_(1e-8)
    parameter.addcdiv_(mean, size, value=-group["lr"] / (1 - first**count))
