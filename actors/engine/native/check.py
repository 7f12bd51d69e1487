"""Proof, before serving, that the executor computes the model: one short forward of both."""

from __future__ import annotations

import torch

from actors.engine.batch import AttentionSpan, StepBatch
from actors.engine.closeness import apart, probe_ids, tolerance
from actors.engine.errors import ModelLoadError
from actors.engine.kv import BlockTable, KVPool
from actors.engine.native.target import NativeTarget
from actors.engine.target import Target

ROWS, BLOCK = 40, 8  # enough for every way of multiplying, two tiles of attention, several blocks


@torch.inference_mode()
def check(native: NativeTarget, eager: Target) -> None:
    """Raises ModelLoadError when the logits differ by more than rounding explains.

    Runs where nothing else uses the eager model: it changes its attention for a moment.
    """
    info = eager.info
    rows = min(ROWS, native.max_model_len)
    blocks = list(range(-(-rows // BLOCK)))[::-1]
    pool = KVPool(info.spec, len(blocks), BLOCK, info.dtype, "cpu", eager.feature_dim)
    table = BlockTable(BLOCK, "cpu")
    table.extend(blocks)
    known = min(info.vocab_size, native.packed.model.tokens)
    ids = probe_ids(rows, known)
    probe = StepBatch(
        ids=torch.tensor([ids]),
        positions=torch.arange(rows)[None],
        slots=table.slots(0, rows),
        keep=torch.arange(rows),
        spans=(AttentionSpan(0, rows, rows, table),),
    )
    off = apart(native.forward(probe, pool), eager.reference(probe))
    if not off <= tolerance(info.dtype):
        raise ModelLoadError(
            f"the native executor differs from transformers' model by {off:.1e} of the logits' "
            "norm",
            param="model",
        )
