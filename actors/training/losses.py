"""Losses of drafted rows against the target's law, with their gradients written out.

A row of logits is as long as the draft vocabulary, and a step has thousands: so the head's
product, the loss and its gradient are computed a few rows at a time, and no row of logits outlives
its turn.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from typing_extensions import override

CHUNK = 256
"""Rows at a time: their logits stay in the cache."""


@dataclass(frozen=True, slots=True)
class LossWeights:
    """Terms of a row with draft law q, target law p and the token t that was written. DSpark's own
    are 0.1 ce + 0.9 tv; a young drafter, whose q is small where p is large, learns next to nothing
    from tv, so most of its weight is on kl here.

    ce: -log q(t). kl: -Σ p log q. tv: Σ |p - q|, twice the chance that a draft is refused.
    state: the mean squared distance of logits over the whole vocabulary (`StateLoss`)."""

    ce: float = 0.1
    kl: float = 0.6
    tv: float = 0.3
    state: float = 0.0


@dataclass(frozen=True, slots=True)
class RowTargets:
    """p: [laws, V], row laws[i] of it is row i's; tokens: the token written, as a place in the
    draft vocabulary, -1 outside; weights: of the rows, zero for those that do not count."""

    p: torch.Tensor
    laws: torch.Tensor
    tokens: torch.Tensor
    weights: torch.Tensor


class _HeadLoss(torch.autograd.Function):
    """The mean loss of rows whose logits are x headᵀ + e biasᵀ."""

    @staticmethod
    @override
    def forward(
        ctx: Any,
        x: torch.Tensor,
        e: torch.Tensor,
        head: torch.Tensor,
        bias: torch.Tensor,
        targets: RowTargets,
        terms: LossWeights,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        total = targets.weights.sum().clamp(min=1e-9)
        gx, ge = torch.empty_like(x), torch.empty_like(e)
        gbias = torch.zeros_like(bias)
        ghead = torch.zeros_like(head) if ctx.needs_input_grad[2] else None
        loss = x.new_zeros(())
        distance = x.new_empty(x.shape[0])
        right = torch.empty(x.shape[0], dtype=torch.bool, device=x.device)
        for start in range(0, x.shape[0], CHUNK):
            rows = slice(start, min(start + CHUNK, x.shape[0]))
            p = targets.p[targets.laws[rows]]
            tokens, weights = targets.tokens[rows], targets.weights[rows] / total
            q = torch.softmax(torch.addmm(x[rows] @ head.T, e[rows], bias.T), -1)
            grad, losses, distance[rows] = _row_gradient(q, p, tokens, terms)
            right[rows] = q.argmax(-1) == tokens
            loss += (losses * weights).sum()
            grad *= weights[:, None]
            torch.mm(grad, head, out=gx[rows])
            torch.mm(grad, bias, out=ge[rows])
            gbias.addmm_(grad.T, e[rows])
            if ghead is not None:
                ghead.addmm_(grad.T, x[rows])
        ctx.save_for_backward(gx, ge, gbias, ghead)
        ctx.mark_non_differentiable(distance, right)
        return loss, distance, right

    @staticmethod
    @override
    def backward(ctx: Any, *grads: Any) -> Any:
        gx, ge, gbias, ghead = ctx.saved_tensors
        scale = grads[0]
        return (
            gx * scale,
            ge * scale,
            None if ghead is None else ghead * scale,
            gbias * scale,
            None,
            None,
        )


def _row_gradient(
    q: torch.Tensor, p: torch.Tensor, tokens: torch.Tensor, terms: LossWeights
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """d loss / d logits [rows, V], the losses [rows], and Σ |p - q| [rows]. With s = sign(q - p):
    d Σ|p-q| / d z = q (s - Σ s q); d ce / d z = q - 1[t]; d kl / d z = q - p."""
    known = tokens >= 0
    place = tokens.clamp(min=0)[:, None]
    off = q - p
    distance = off.abs().sum(-1)
    if terms.tv:
        s = off.sign()
        s -= (s * q).sum(-1, keepdim=True)
        grad = s.mul_(q).mul_(terms.tv)
    else:
        grad = torch.zeros_like(q)
    losses = terms.tv * distance
    if terms.kl:
        grad.add_(off, alpha=terms.kl)
        losses = losses - terms.kl * (p * q.clamp(min=1e-12).log()).sum(-1)
    if terms.ce:
        hard = terms.ce * known.to(q.dtype)
        grad.addcmul_(q, hard[:, None])
        grad.scatter_add_(1, place, -hard[:, None])
        losses = losses - hard * q.gather(1, place)[:, 0].clamp(min=1e-12).log()
    return grad, losses, distance


def head_loss(
    x: torch.Tensor,
    head: torch.Tensor,
    targets: RowTargets,
    terms: LossWeights,
    e: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """x [rows, hidden] and head [V, hidden], plus a low-rank bias e [rows, r] biasᵀ [V, r].

    The weighted mean loss; Σ |p - q| of each row; whether its most likely draft is the token that
    was written. Only the loss has a gradient.
    """
    if e is None or bias is None:
        e, bias = x.new_zeros(x.shape[0], 1), head.new_zeros(head.shape[0], 1)
    out: tuple[torch.Tensor, torch.Tensor, torch.Tensor] = _HeadLoss.apply(  # type: ignore[no-untyped-call]
        x, e, head, bias, targets, terms
    )
    return out


class StateLoss:
    """How far a state is from the target's own last one, measured in logits: with the centred
    rows W of the head, |W (x - y)|² / V = (x - y)ᵀ C (x - y), one small matrix whatever the
    vocabulary. A state has hundreds of numbers to learn from where a token is one.

    head: [vocab, hidden], the target's.
    """

    def __init__(self, head: torch.Tensor) -> None:
        centred = head - head.mean(0)
        self._metric = centred.T @ centred / head.shape[0]

    def __call__(self, x: torch.Tensor, y: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        """x, y [rows, hidden], what the head reads of drafter and target -> the weighted mean."""
        off = x - y
        losses = ((off @ self._metric) * off).sum(-1)
        return (losses * weights).sum() / weights.sum().clamp(min=1e-9)


def confidence_loss(
    logits: torch.Tensor, distance: torch.Tensor, weights: torch.Tensor
) -> torch.Tensor:
    """Binary cross-entropy of the confidence [rows] with the chance of acceptance 1 - ½ Σ |p-q|
    (arXiv 2607.05147)."""
    chance = (1.0 - 0.5 * distance).clamp(0.0, 1.0)
    losses = torch.nn.functional.binary_cross_entropy_with_logits(logits, chance, reduction="none")
    return (losses * weights).sum() / weights.sum().clamp(min=1e-9)


def slot_weights(slots: int, gamma: float) -> torch.Tensor:
    """exp(-(k-1)/γ) for k = 1 … slots: a draft counts only when those before it were right."""
    return torch.exp(-torch.arange(slots, dtype=torch.float32) / gamma)


def pace_weights(chance: torch.Tensor, alpha: float = 0.5) -> torch.Tensor:
    """D-PACE (arXiv 2605.18810): weights from how likely the block lives so long under the
    drafter as it is now. chance: q(t) [blocks, slots], detached; w_k = Σ_{m>=k} Π_{i<=m} q̃_i with
    q̃ = (1-α) q + α."""
    alive = ((1 - alpha) * chance + alpha).cumprod(-1)
    return alive.flip(-1).cumsum(-1).flip(-1)
