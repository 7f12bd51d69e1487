"""What a checkpoint is, in plain values: for people, and for programs as JSON."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from actors.drafters.checkpoints.files import open_checkpoint
from actors.drafters.checkpoints.fit import misfits, rope_note, tokenizer_misfit
from actors.drafters.checkpoints.head import LoadedHead
from actors.drafters.checkpoints.table import read_head
from actors.drafters.external_cut import KEY
from actors.drafters.external_inspect import inspect_cut
from actors.drafters.learned.load import target_shape
from actors.drafters.learned.target_parts import target_config


def inspect(folder: Path, target: Path | None = None) -> dict[str, Any]:
    """Everything that loading it would find out. With a target also `fits`, and `reasons` why not.
    Raises DrafterLoadError, as loading would."""
    checkpoint = open_checkpoint(folder)
    if KEY in checkpoint.config:
        return inspect_cut(checkpoint, target)
    shape = None if target is None else target_shape(target)
    head = read_head(checkpoint, shape)
    said: dict[str, Any] = {
        "folder": str(folder),
        "method": head.mechanism,
        "producer": head.producer,
        "for": head.target_name,
        "taps": list(head.taps),
        "taps_from": head.taps_from,
        "target_hidden": head.target_hidden,
        "target_layers": head.target_layers,
        "vocabulary": head.vocab,
        "draft_vocabulary": head.vocab if head.draft_ids is None else len(head.draft_ids),
        "parameters": sum(t.numel() for t in head.tensors.values()),
        "bytes": sum(t.numel() * t.element_size() for t in head.tensors.values()),
        "own_embedding": "embed_tokens.weight" in head.tensors,
        "own_head": "lm_head.weight" in head.tensors,
        "shapes": {name: list(t.shape) for name, t in sorted(head.tensors.items())},
        "spec": _spec(head),
        "notes": list(head.notes),
    }
    if shape is not None and target is not None:
        other = tokenizer_misfit(folder, target)
        reasons = [*misfits(head, shape), *([other] if other else [])]
        said |= {"target": str(target), "fits": not reasons, "reasons": reasons}
        if note := rope_note(head, target_config(target)):
            said["notes"].append(note)
    return said


def _spec(head: LoadedHead) -> dict[str, Any]:
    """The mechanism's own values; what JSON has no word for is spelled."""
    return {k: _plain(v) for k, v in asdict(head.spec).items()}


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    if isinstance(value, torch.Tensor):
        return value.tolist()
    return value if isinstance(value, str | int | float | bool | None) else str(value)
