"""speculators' MTP: one layer, [embedding, hidden], the target's config inside its own.

The schema has no draft vocabulary; one that is there (`mtp_vocabulary`) is read."""

from __future__ import annotations

from collections.abc import Mapping

from actors.drafters.checkpoints.eagle3_speculators import verifier_name
from actors.drafters.checkpoints.files import Checkpoint, refusal
from actors.drafters.checkpoints.head import LoadedHead, TargetShape
from actors.drafters.checkpoints.mtp_build import MtpFormat, build
from actors.drafters.checkpoints.mtp_vocabulary import HEAD, reduced

# What the library takes from the target when it loads a file.
_REBUILT = ("embed_tokens.", "verifier_lm_head.", "rotary_emb.")
NAMES = {
    "token_layernorm.": "enorm.",
    "hidden_layernorm.": "hnorm.",
    "input_proj.": "eh_proj.",
    "final_layernorm.": "norm.",
}


def matches(checkpoint: Checkpoint) -> bool:
    return checkpoint.config.get("speculators_model_type") == "mtp"


def read(checkpoint: Checkpoint, target: TargetShape | None) -> LoadedHead:
    """Raises DrafterLoadError."""
    config = checkpoint.config
    layer = config.get("transformer_layer_config")
    if not isinstance(layer, Mapping):
        raise refusal("config.json has no transformer_layer_config")
    vocabulary = reduced(checkpoint, target.vocab if target else 0)
    rebuilt = _REBUILT if vocabulary else (*_REBUILT, HEAD)
    return build(
        checkpoint,
        MtpFormat(
            producer="speculators (mtp)",
            rename=lambda name: None if name.startswith(rebuilt) else stage_name(name, ""),
            # The target's own count is of its own layers, wherever this head came from.
            config={k: v for k, v in layer.items() if "mtp" not in k and "nextn" not in k},
            target_name=verifier_name(config),
            reduced=vocabulary,
        ),
    )


def stage_name(name: str, prefix: str) -> str:
    """`{prefix}mtp_layers.{i}.…`, as MiMo and speculators call it, to `stages.{i}.…`."""
    if not name.startswith(f"{prefix}mtp_layers."):
        return name
    index, _, rest = name.removeprefix(f"{prefix}mtp_layers.").partition(".")
    for old, new in NAMES.items():
        if rest.startswith(old):
            return f"stages.{index}.{new}{rest.removeprefix(old)}"
    return f"stages.{index}.block.{rest}"
