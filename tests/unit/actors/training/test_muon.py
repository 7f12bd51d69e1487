"""Updates without a direction that drowns the others."""

from __future__ import annotations

import pytest
import torch

from actors.training.muon import ROWS, BlockMuon, orthogonal


@pytest.mark.parametrize("shape", [(2, 8, 24), (3, 24, 8), (1, 12, 16)])
def test_singular_values_come_near_one(shape: tuple[int, int, int]) -> None:
    blocks = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    blocks[0, 0] *= 30
    values = torch.linalg.svdvals(orthogonal(blocks))
    assert float(values.min()) > 0.2
    assert float(values.max()) < 1.3


def test_blocks_are_updated_each_by_itself() -> None:
    """The last one with the rows that are left."""
    rows = 2 * ROWS + 5
    weight = torch.nn.Parameter(torch.zeros(rows, 16))
    grad = torch.randn(rows, 16, generator=torch.Generator().manual_seed(0))
    optimizer = BlockMuon({"params": [weight]}, {"params": []}, lr=1.0)
    weight.grad = grad.clone()
    optimizer.step()
    whole = weight.detach().clone()
    for block in (slice(0, ROWS), slice(ROWS, 2 * ROWS)):
        alone = torch.nn.Parameter(torch.zeros(ROWS, 16))
        alone.grad = grad[block].clone()
        BlockMuon({"params": [alone]}, {"params": []}, lr=1.0).step()
        torch.testing.assert_close(whole[block], alone.detach())
    size = whole[:ROWS].pow(2).mean().sqrt()
    assert 0.05 < float(size) < 0.4  # as large as AdamW's


def test_vectors_move_as_with_adamw() -> None:
    ours = torch.nn.Parameter(torch.ones(7))
    theirs = torch.nn.Parameter(torch.ones(7))
    muon = BlockMuon({"params": []}, {"params": [ours]}, lr=1e-2)
    adamw = torch.optim.AdamW([theirs], lr=1e-2, betas=(0.9, 0.95), weight_decay=0.0)
    for step in range(5):
        grad = torch.randn(7, generator=torch.Generator().manual_seed(step))
        ours.grad, theirs.grad = grad.clone(), grad.clone()
        muon.step()
        adamw.step()
    torch.testing.assert_close(ours.detach(), theirs.detach())
