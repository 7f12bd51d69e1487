"""Drafters that are known by name and not supported: refused with the name, never half loaded."""

from __future__ import annotations

from actors.drafters.checkpoints.files import Checkpoint, refusal
from actors.drafters.checkpoints.head import LoadedHead, TargetShape

ARCHITECTURES = {
    "LiLiCorrDraftModel": "LiLiCorr",
    "Qwen3XPressModel": "XPress",
    "Gemma4DSparkModel": "DSpark for Gemma 4 (four norms a layer, GELU)",
    "FlashMapDraftModel": "FlashMap",
}
PREFIXES = {
    "lilicorr.": "LiLiCorr",
    "xpress_head.": "XPress",
    "hidden_correction.": "DFly",
    "layer_fusion_weights": "DFly",
}


def matches(checkpoint: Checkpoint) -> bool:
    return bool(_name(checkpoint))


def read(checkpoint: Checkpoint, target: TargetShape | None) -> LoadedHead:
    raise refusal(
        f"{checkpoint.folder} is a drafter of {_name(checkpoint)}, which is not supported"
    )


def _name(checkpoint: Checkpoint) -> str:
    said = str(checkpoint.config.get("speculators_model_type") or "")
    if said == "xpress":
        return "XPress"
    if checkpoint.architecture in ARCHITECTURES:
        return ARCHITECTURES[checkpoint.architecture]
    if "dspark_block_size" in checkpoint.config:
        return "DSpark built into DeepSeek-V4 (mHC and experts)"
    found = [PREFIXES[p] for p in PREFIXES if any(n.startswith(p) for n in checkpoint.files)]
    return found[0] if found else ""
