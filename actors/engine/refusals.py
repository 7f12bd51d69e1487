"""Weights this engine does not serve, refused by name (law L1): before they are loaded, where
the config tells."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from actors.engine.errors import ModelLoadError

_CAPACITIES = ("expert_capacity", "expert_capacity_factor", "capacity_factor")
_SCALE = re.compile(r"(weight|proj)_scale|qweight|weight_packed")
"""What stands beside weights of few bits, in the formats of ModelOpt, compressed-tensors, AutoGPTQ
and AutoAWQ."""


def refuse_quantized(config: Any) -> None:
    """Quantised checkpoints: their kernels scale activations over the rows of a batch or are not
    to be had on every device, and no test here proves that a row's logits are its own."""
    for part in _parts(config):
        found = getattr(part, "quantization_config", None)
        if not found:
            continue
        method = found.get("quant_method") if isinstance(found, dict) else found.quant_method
        raise ModelLoadError(
            f"{part.model_type}: weights quantised with {getattr(method, 'value', method)} are not "
            "served; use the checkpoint in bfloat16, float16 or float32",
            param="model",
        )


def refuse_dropping_experts(config: Any) -> None:
    """Experts of limited capacity drop a token when its batch mates have filled them, so a row's
    text would depend on the others. Routing that drops nothing is served."""
    for part in _parts(config):
        for name in _CAPACITIES:
            if getattr(part, name, None):
                raise ModelLoadError(
                    f"{part.model_type}: experts with {name} drop tokens depending on their batch "
                    "mates; only experts that take every token are served",
                    param="model",
                )


def refuse_incomplete(path: str, found: Mapping[str, Any]) -> None:
    """Weights that are not the whole model. transformers would draw what is missing or of another
    shape at random, and leave unread the scales of a quantised checkpoint whose config does not say
    that it is one; either is said in a log alone, and the model writes nonsense.

    found: what `from_pretrained` says of the loading.
    """
    missing = sorted(found["missing_keys"])
    if missing:
        raise ModelLoadError(f"{path}: {_some(missing)} missing from the weights", param="model")
    shapes = [
        f"{name} ({_shape(theirs)}, the model's is {_shape(ours)})"
        for name, theirs, ours in sorted(found["mismatched_keys"])
    ]
    if shapes:
        raise ModelLoadError(f"{path}: {_some(shapes)} of another shape", param="model")
    scales = sorted(name for name in found["unexpected_keys"] if _SCALE.search(name))
    if scales:
        raise ModelLoadError(
            f"{path}: {scales[0]} is of a quantised checkpoint, and the config names no method; "
            "quantised weights are not served",
            param="model",
        )


def _some(names: list[str]) -> str:
    """The first, and how many more, with its verb."""
    if len(names) == 1:
        return f"{names[0]} is"
    return f"{names[0]} and {len(names) - 1} more are"


def _shape(size: Any) -> str:
    return "x".join(map(str, size))


def _parts(config: Any) -> tuple[Any, ...]:
    """The config and that of its text model, where it has one of its own."""
    text = config.get_text_config() if hasattr(config, "get_text_config") else config
    return (config,) if text is config else (config, text)
