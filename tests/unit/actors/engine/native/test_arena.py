"""Tensors side by side, whole and apart."""

from __future__ import annotations

import torch

from actors.engine.native import arena as module
from actors.engine.native.arena import CHUNK, LINE, Arena


def test_tensors_are_copied_whole_and_lie_apart() -> None:
    arena, generator = Arena(), torch.Generator().manual_seed(0)
    sources = [
        torch.randn(shape, generator=generator).to(dtype)
        for shape in ((7, 5), (1,), (33, 16, 3))
        for dtype in (torch.bfloat16, torch.float32)
    ]
    kept = [arena.keep(source.t() if source.dim() == 2 else source) for source in sources]
    for source, copy in zip(sources, kept, strict=True):
        assert torch.equal(copy, source.t() if source.dim() == 2 else source)
        assert copy.is_contiguous()
        assert copy.data_ptr() % LINE == 0


def test_what_does_not_fit_gets_a_mapping_of_its_own() -> None:
    arena = Arena()
    small = arena.keep(torch.ones(3))
    large = arena.keep(torch.full((CHUNK // 4 + 1,), 2.0))
    assert small.tolist() == [1.0] * 3
    assert bool((large == 2.0).all())
    assert large.data_ptr() % module.PAGE == 0


def test_a_tensor_outlives_its_arena() -> None:
    kept = Arena().keep(torch.arange(5))
    assert kept.tolist() == [0, 1, 2, 3, 4]
