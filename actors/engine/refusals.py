"""Weights this engine does not serve, refused by name before they are loaded (law L1)."""

from __future__ import annotations

from typing import Any

from actors.engine.errors import ModelLoadError

_CAPACITIES = ("expert_capacity", "expert_capacity_factor", "capacity_factor")


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


def _parts(config: Any) -> tuple[Any, ...]:
    """The config and that of its text model, where it has one of its own."""
    text = config.get_text_config() if hasattr(config, "get_text_config") else config
    return (config,) if text is config else (config, text)
