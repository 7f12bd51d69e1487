"""EAGLE-3 outside of speculators' schema: SafeAILab and AngelSlim, SpecForge, ModelOpt, NeMo
AutoModel, DeepSpec. They are told apart by names of tensors and keys, and matched by their shape
alone: a first layer that reads twice the width that `fc` writes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from actors.drafters.checkpoints.eagle3_build import (
    Format,
    Taps,
    build,
    default_taps,
    listed_taps,
    rename,
)
from actors.drafters.checkpoints.files import Checkpoint, refusal
from actors.drafters.checkpoints.head import LoadedHead, TargetShape

_TAPS = "eagle_aux_hidden_state_layer_ids"


def matches(checkpoint: Checkpoint) -> bool:
    shapes = {rename(name): shape for name, shape in checkpoint.shapes.items()}
    fc = shapes.get("fc.weight")
    for name in ("q_proj", "q_a_proj"):
        q = shapes.get(f"layers.0.self_attn.{name}.weight")
        if fc and q and len(fc) == len(q) == 2:
            return q[1] == 2 * fc[0]
    return False


def read(checkpoint: Checkpoint, target: TargetShape | None) -> LoadedHead:
    """Raises DrafterLoadError."""
    config = checkpoint.config
    nested = config.get("eagle_config")
    nested = nested if isinstance(nested, Mapping) else {}
    _only_known_options(checkpoint, nested)
    producer = _producer(checkpoint, nested)
    norm_output, notes = _norm_output(producer, config)
    return build(
        checkpoint,
        Format(
            producer=producer,
            layer=config,
            taps=_taps(config, nested) or default_taps(target),
            norm_output=norm_output,
            notes=notes,
        ),
        target,
    )


def _producer(checkpoint: Checkpoint, nested: Mapping[str, Any]) -> str:
    names = checkpoint.shapes
    if "model.fc.weight" in names:
        return "NeMo AutoModel"
    if checkpoint.architecture in ("Qwen3Eagle3Model", "Gemma4Eagle3Model"):
        return "DeepSpec"
    if any(name.startswith("midlayer.") for name in names):
        return "SpecForge" if "Eagle3" in checkpoint.architecture else "SafeAILab"
    return "ModelOpt" if nested else "vLLM's layout"


def _taps(config: Mapping[str, Any], nested: Mapping[str, Any]) -> Taps | None:
    """The key says who counts how: vLLM's is the input of a layer, all others' the output."""
    return (
        listed_taps(config, _TAPS, 0)
        or listed_taps(nested, _TAPS, 1, f"eagle_config.{_TAPS}")
        or listed_taps(config, "aux_layer_ids", 1)
        or listed_taps(config, "target_layer_ids", 1)
    )


def _norm_output(producer: str, config: Mapping[str, Any]) -> tuple[bool, tuple[str, ...]]:
    """Whether what goes on to the next step is normed. SpecForge wrote True for plain EAGLE-3
    until September 2026, and for 3.1 since: there norms before fc tell."""
    said = bool(config.get("norm_output"))
    if producer != "SpecForge" or not said or config.get("fc_norm"):
        return said, ()
    return False, ("norm_output without fc_norm is read as plain EAGLE-3, as SpecForge meant it",)


def _only_known_options(checkpoint: Checkpoint, nested: Mapping[str, Any]) -> None:
    if "Gemma" in checkpoint.architecture:
        raise refusal(f"{checkpoint.architecture}: whether embeddings are scaled is not said")
    known = {
        "use_aux_hidden_state": True,
        "use_input_layernorm_in_first_layer": True,
        "use_last_layernorm": True,
        "use_mtp_layernorm": False,
        "parallel_draft_step": 1,
    }
    for key, value in known.items():
        if nested.get(key, value) not in (value, None):
            raise refusal(f"eagle_config.{key} is {nested[key]!r}; only {value!r} is known here")
