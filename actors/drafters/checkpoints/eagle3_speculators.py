"""speculators' EAGLE-3 and P-EAGLE: everything is said in config.json."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from actors.drafters.checkpoints.eagle3_build import Format, build, default_taps, listed_taps
from actors.drafters.checkpoints.files import Checkpoint, refusal
from actors.drafters.checkpoints.head import LoadedHead, TargetShape

_KINDS = ("eagle3", "peagle")
_TAPS = "eagle_aux_hidden_state_layer_ids"


def matches(checkpoint: Checkpoint) -> bool:
    return checkpoint.config.get("speculators_model_type") in _KINDS


def read(checkpoint: Checkpoint, target: TargetShape | None) -> LoadedHead:
    """Raises DrafterLoadError."""
    config = checkpoint.config
    layer = config.get("transformer_layer_config")
    if not isinstance(layer, Mapping):
        raise refusal("config.json has no transformer_layer_config")
    kind = str(config["speculators_model_type"])
    # Where the key is missing vLLM takes True for eagle3 and False for peagle.
    before = config.get("norm_before_residual", kind == "eagle3")
    return build(
        checkpoint,
        Format(
            producer=f"speculators ({kind})",
            layer=layer,
            taps=listed_taps(config, _TAPS, 0) or default_taps(target),
            norm_before_residual=bool(before),
            norm_output=bool(config.get("norm_output")),
            target_name=verifier_name(config),
        ),
        target,
    )


def verifier_name(config: Mapping[str, Any]) -> str:
    """The target that speculators' files say they are for; "" unsaid."""
    said = config.get("speculators_config")
    verifier = said.get("verifier") if isinstance(said, Mapping) else None
    name = verifier.get("name_or_path") if isinstance(verifier, Mapping) else None
    return name if isinstance(name, str) else ""
