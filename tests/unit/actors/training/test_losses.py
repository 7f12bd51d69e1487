"""Losses have the gradients that automatic differentiation gives them."""

from __future__ import annotations

import pytest
import torch

from actors.training import losses
from actors.training.losses import (
    LossWeights,
    RowTargets,
    StateLoss,
    head_loss,
    pace_weights,
    slot_weights,
)

ROWS, HIDDEN, VOCAB, RANK = 11, 6, 9, 3


def made(name: str, *shape: int) -> torch.Tensor:
    random = torch.Generator().manual_seed(hash(name) % 1000)
    return torch.randn(*shape, generator=random, dtype=torch.float64)


def targets() -> RowTargets:
    tokens = torch.tensor([0, 1, 2, -1, 4, 5, 6, 7, 8, -1, 0])
    return RowTargets(
        torch.softmax(2 * made("p", 4, VOCAB), -1),
        torch.tensor([0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2]),
        tokens,
        torch.rand(ROWS, dtype=torch.float64, generator=torch.Generator().manual_seed(1)),
    )


def plain(x, head, e, bias, t: RowTargets, terms: LossWeights) -> torch.Tensor:
    """By the definition, for torch to differentiate."""
    log_q = torch.log_softmax(x @ head.T + e @ bias.T, -1)
    p, known = t.p[t.laws], t.tokens >= 0
    ce = -log_q.gather(1, t.tokens.clamp(min=0)[:, None])[:, 0] * known
    tv = (p - log_q.exp()).abs().sum(-1)
    kl = -(p * log_q).sum(-1)
    rows = terms.ce * ce + terms.kl * kl + terms.tv * tv
    return (rows * t.weights).sum() / t.weights.sum()


@pytest.mark.parametrize(
    "terms", [LossWeights(1, 0, 0), LossWeights(0, 1, 0), LossWeights(0, 0, 1), LossWeights()]
)
@pytest.mark.parametrize("chunk", [3, 256])
def test_the_loss_and_its_gradients_are_those_of_its_definition(
    terms: LossWeights, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(losses, "CHUNK", chunk)
    shapes = {"x": (ROWS, HIDDEN), "head": (VOCAB, HIDDEN), "e": (ROWS, RANK), "b": (VOCAB, RANK)}
    ours = {n: made(n, *s).requires_grad_() for n, s in shapes.items()}
    theirs = {n: made(n, *s).requires_grad_() for n, s in shapes.items()}
    loss, distance, _ = head_loss(ours["x"], ours["head"], targets(), terms, ours["e"], ours["b"])
    expected = plain(theirs["x"], theirs["head"], theirs["e"], theirs["b"], targets(), terms)
    torch.testing.assert_close(loss, expected)
    (3 * loss).backward()
    (3 * expected).backward()
    for name in shapes:
        torch.testing.assert_close(ours[name].grad, theirs[name].grad)
    q = torch.softmax(ours["x"] @ ours["head"].T + ours["e"] @ ours["b"].T, -1)
    torch.testing.assert_close(distance, (q - targets().p[targets().laws]).abs().sum(-1).detach())


def test_a_head_that_is_the_targets_own_gets_no_gradient() -> None:
    x, head = made("x", ROWS, HIDDEN).requires_grad_(), made("head", VOCAB, HIDDEN)
    loss, _, _ = head_loss(x, head, targets(), LossWeights())
    loss.backward()
    assert head.grad is None
    assert x.grad is not None


def test_slots_weigh_less_the_later_they_are() -> None:
    expected = torch.tensor([1.0, 0.7788, 0.6065, 0.4724])
    torch.testing.assert_close(slot_weights(4, 4.0), expected, atol=1e-4, rtol=0)


def test_pace_weights_sum_the_survival_from_each_slot_on() -> None:
    q = torch.tensor([[0.5, 0.2, 0.8]])
    a, b, c = 0.75, 0.75 * 0.6, 0.75 * 0.6 * 0.9
    torch.testing.assert_close(pace_weights(q), torch.tensor([[a + b + c, b + c, c]]))


def test_the_distance_of_states_is_that_of_centred_logits() -> None:
    x, y, head = made("x", ROWS, HIDDEN), made("y", ROWS, HIDDEN), made("head", VOCAB, HIDDEN)
    weights = targets().weights
    off = (x - y) @ head.T
    rows = (off - off.mean(-1, keepdim=True)).pow(2).mean(-1)
    expected = (rows * weights).sum() / weights.sum()
    torch.testing.assert_close(StateLoss(head)(x, y, weights), expected)
