"""Drafters that are known by name and not supported: refused with the name, never half loaded."""

from __future__ import annotations

from actors.drafters.checkpoints.files import Checkpoint, refusal
from actors.drafters.checkpoints.head import LoadedHead, TargetShape

ARCHITECTURES = {
    "DFlash2DraftModel": "DFlash 2 (convolutions and a candidate selector)",
    "LiLiCorrDraftModel": "LiLiCorr",
    "Qwen3XPressModel": "XPress",
    "Gemma4DSparkModel": "DSpark for Gemma 4 (four norms a layer, GELU)",
    "MuseGlimmerAssistantModel": "Muse Glimmer's DFlash",
    "FlashMapDraftModel": "FlashMap",
}
PREFIXES = {
    "candidate_selector.": "DFlash 2",
    "lilicorr.": "LiLiCorr",
    "xpress_head.": "XPress",
    "prefix_gru.": "Domino",
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
    if said in ("dflash2", "xpress"):
        return {"dflash2": "DFlash 2", "xpress": "XPress"}[said]
    if checkpoint.architecture in ARCHITECTURES:
        return ARCHITECTURES[checkpoint.architecture]
    if "dspark_block_size" in checkpoint.config:
        return "DSpark built into DeepSeek-V4 (mHC and experts)"
    found = [PREFIXES[p] for p in PREFIXES if any(n.startswith(p) for n in checkpoint.files)]
    return found[0] if found else ""
