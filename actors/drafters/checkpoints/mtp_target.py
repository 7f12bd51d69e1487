"""MTP heads inside a target's own checkpoint: Qwen3-Next's and 3.5's `mtp.*`, MiMo's
`model.mtp_layers.*`, the layers after the last of DeepSeek-V3 and GLM-4.5."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from actors.drafters.checkpoints.files import Checkpoint, refusal
from actors.drafters.checkpoints.head import LoadedHead, TargetShape
from actors.drafters.checkpoints.mtp_build import SHARED, MtpFormat, build
from actors.drafters.checkpoints.mtp_speculators import stage_name

_LAYER = re.compile(r"model\.layers\.(\d+)\.(.*)")
_MIMO = "model.mtp_layers."
_QWEN = {
    "mtp.fc.": f"{SHARED}eh_proj.",
    "mtp.pre_fc_norm_embedding.": f"{SHARED}enorm.",
    "mtp.pre_fc_norm_hidden.": f"{SHARED}hnorm.",
    "mtp.norm.": f"{SHARED}norm.",
}
_QWEN_SHARED = ("enorm.weight", "hnorm.weight", "eh_proj.weight", "norm.weight")
_COPIES = ("embed_tokens.weight", "shared_head.head.weight")
"""DeepSeek's heads repeat the target's embedding and head."""


def matches(checkpoint: Checkpoint) -> bool:
    return bool(_layout(checkpoint))


def read(checkpoint: Checkpoint, target: TargetShape | None) -> LoadedHead:
    """Raises DrafterLoadError."""
    config, layout = _text(checkpoint), _layout(checkpoint)
    if layout == "qwen":
        return build(
            checkpoint, MtpFormat("Qwen3-Next's mtp.*", _qwen, config, shared=_QWEN_SHARED)
        )
    if layout == "mimo":
        return build(
            checkpoint, MtpFormat("MiMo's model.mtp_layers.*", _mimo, config, hidden_first=True)
        )
    if layout == "deepseek":
        layers = int(config["num_hidden_layers"])
        name = f"DeepSeek's model.layers.{layers}.*"
        return build(checkpoint, MtpFormat(name, lambda n: _deepseek(n, layers), config))
    raise refusal(f"{checkpoint.folder} has no MTP head")


def _text(checkpoint: Checkpoint) -> Mapping[str, Any]:
    nested = checkpoint.config.get("text_config")
    return nested if isinstance(nested, Mapping) else checkpoint.config


def _layout(checkpoint: Checkpoint) -> str:
    layers = _text(checkpoint).get("num_hidden_layers")
    names = checkpoint.shapes
    if "mtp.fc.weight" in names:
        return "qwen"
    if any(name.startswith(_MIMO) for name in names):
        return "mimo"
    after = isinstance(layers, int) and f"model.layers.{layers}.eh_proj.weight" in names
    return "deepseek" if after else ""


def _qwen(name: str) -> str | None:
    if not name.startswith("mtp."):
        return None
    for old, new in _QWEN.items():
        if name.startswith(old):
            return new + name.removeprefix(old)
    index, _, rest = name.removeprefix("mtp.layers.").partition(".")
    return f"stages.{index}.block.{rest}" if name.startswith("mtp.layers.") else name


def _mimo(name: str) -> str | None:
    return stage_name(name, "model.") if name.startswith(_MIMO) else None


def _deepseek(name: str, layers: int) -> str | None:
    match = _LAYER.fullmatch(name)
    if match is None or int(match[1]) < layers or match[2] in _COPIES:
        return None
    stage, rest = f"stages.{int(match[1]) - layers}.", match[2]
    if rest.startswith("shared_head.norm."):
        return f"{stage}norm.{rest.removeprefix('shared_head.norm.')}"
    if rest.startswith(("enorm.", "hnorm.", "eh_proj.")):
        return stage + rest
    return f"{stage}block.{rest}"
