"""Which models the executor can run, and what it needs of them."""

from __future__ import annotations

from typing import Any

import torch

FAMILY = ("LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM")
DTYPES = (torch.bfloat16, torch.float32)


def config_obstacle(config: Any) -> str:
    """Why a model of this transformers config cannot run natively; empty when it can."""
    names = list(getattr(config, "architectures", None) or [])
    if names and names[0] not in FAMILY:
        return f"{names[0]} is none of {', '.join(FAMILY)}"
    text = config.get_text_config()
    if getattr(text, "hidden_act", None) != "silu":
        return f"the activation is {getattr(text, 'hidden_act', None)}, not silu"
    if getattr(text, "mlp_bias", False):
        return "the MLP has biases"
    if getattr(config, "quantization_config", None):
        return "the weights are quantised"
    head_dim = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
    if head_dim % 8 or text.hidden_size % 8:
        return f"hidden size {text.hidden_size} or head size {head_dim} is no multiple of 8"
    return ""


def obstacle(model: Any) -> str:
    """Why this loaded transformers model cannot run natively; empty when it can."""
    if type(model).__name__ not in FAMILY:
        return f"{type(model).__name__} is none of {', '.join(FAMILY)}"
    if model.dtype not in DTYPES:
        return f"{model.dtype} is neither bfloat16 nor float32"
    if model.device.type != "cpu":
        return f"the model is on {model.device}"
    layer = model.model.layers[0]
    if any(getattr(layer.mlp, name).bias is not None for name in ("gate_proj", "up_proj")):
        return "the MLP has biases"
    for layer in model.model.layers:
        linears = [m for m in layer.modules() if hasattr(m, "weight") and m.weight.dim() == 2]
        if len(linears) != 7 or any(type(m) is not torch.nn.Linear for m in linears):
            return "a layer is not made of seven plain linear maps"
    return config_obstacle(model.config)


@torch.inference_mode()
def rotary_tables(model: Any, positions: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The model's own cosines and sines, float32 [positions, head_dim], of the values it would
    use in its dtype."""
    rows = torch.arange(positions)[None]
    probe = torch.empty(1, dtype=model.dtype)
    cosines, sines = model.model.rotary_emb(probe, rows)
    return cosines[0].float().contiguous(), sines[0].float().contiguous()
