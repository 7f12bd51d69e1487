"""What a draft model is that was cut from its target, in the plain values of `inspect`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from actors.drafters.checkpoints.files import Checkpoint, open_checkpoint
from actors.drafters.errors import DrafterLoadError
from actors.drafters.external_cut import D2T, Shared, check_target, head_ids
from actors.drafters.learned.target_parts import target_parts


def inspect_cut(own: Checkpoint, target: Path | None) -> dict[str, Any]:
    """With a target also `fits`, and `reasons` why not. Raises DrafterLoadError, as loading
    would."""
    shared = Shared.read(own.config, own.folder)
    tensors = {name: own.tensor(name) for name in own.files}
    vocab = int(own.config.get("vocab_size") or 0)
    ids = head_ids(own, vocab)
    said: dict[str, Any] = {
        "folder": str(own.folder),
        "method": "draft_model",
        "producer": "pilotfish",
        "for": f"the target whose embedding and head have the digest {shared.weights}",
        "taps": [],
        "taps_from": "it reads tokens alone",
        "target_hidden": int(own.config.get("hidden_size") or 0),
        "target_layers": 0,
        "vocabulary": vocab,
        "draft_vocabulary": vocab if ids is None else len(ids),
        "parameters": sum(t.numel() for name, t in tensors.items() if name != D2T),
        "bytes": sum(t.numel() * t.element_size() for t in tensors.values()),
        "own_embedding": False,
        "own_head": False,
        "shapes": {name: list(t.shape) for name, t in sorted(tensors.items())},
        "spec": {"layers": own.config.get("num_hidden_layers"), "shared_layers": shared.layers},
        "notes": [
            f"of its {own.config.get('num_hidden_layers')} layers the first {shared.layers} are "
            "the target's own"
        ],
    }
    if target is None:
        return said
    reasons: list[str] = []
    try:
        check_target(
            shared, target_parts(target, torch.bfloat16), open_checkpoint(target), own.folder
        )
    except DrafterLoadError as error:
        reasons = [str(error)]
    return said | {"target": str(target), "fits": not reasons, "reasons": reasons}
