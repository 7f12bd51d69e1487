"""The tiny target that the tests' learned drafters are for, and hidden states made up for it."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Sequence
from pathlib import Path

import torch
from transformers import LlamaForCausalLM

from tests.checkpoints.block import HIDDEN, TARGET_LAYERS, VOCAB
from tests.models import make_rand, save_tiny


@functools.cache
def target() -> LlamaForCausalLM:
    """fp64, untied."""
    return make_rand(vocab=VOCAB, hidden=HIDDEN, layers=TARGET_LAYERS)


@functools.cache
def target_folder() -> Path:
    kept = Path(tempfile.mkdtemp(prefix="pilotfish-target-"))
    save_tiny(target(), kept)
    return kept


@functools.cache
def _table(width: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(3)
    return torch.randn(VOCAB, width, generator=generator, dtype=torch.float64)


def made_up(tokens: Sequence[int], start: int, stop: int, width: int) -> torch.Tensor:
    """Feature rows start … stop-1 of a text, fp64 [rows, width]: each a function of its position
    and its last two tokens, so that a row that is wrong, missing or shifted changes drafts."""
    rows = [
        _table(width)[tokens[j]] + 0.5 * _table(width)[tokens[max(0, j - 1)]].roll(j)
        for j in range(start, stop)
    ]
    return torch.stack(rows) if rows else torch.empty(0, width, dtype=torch.float64)
