"""Which tensor-parallel sizes a model can be cut to, told before anything is loaded."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from actors.engine.errors import ModelLoadError
from actors.engine.state import Layer, is_recurrent, paged_layers, state_specification

_KEYS = ("k_proj", "qkv_proj", "query_key_value")  # where they are cut, heads are


def check_divides(config: Any, world: int) -> None:
    """Raises ModelLoadError, naming the sizes that would do, when `world` does not divide what is
    cut: vocabulary, heads and KV heads, experts' width; or when transformers has no plan for it.
    """
    text = config.get_text_config() if hasattr(config, "get_text_config") else config
    kind = text.model_type
    plan = getattr(text, "base_model_tp_plan", None)
    if not plan:
        raise ModelLoadError(
            f"{kind}: transformers has no plan to cut this architecture; serve it with "
            "tensor_parallel_size 1",
            param="tensor_parallel_size",
        )
    if is_recurrent(state_specification(text)):
        raise ModelLoadError(
            f"{kind}: recurrent layers are not cut yet; serve it with tensor_parallel_size 1",
            param="tensor_parallel_size",
        )
    sizes = _cut_sizes(text, plan)
    undivided = [f"{size} {name}" for name, size in sizes.items() if size % world]
    if undivided:
        common = math.gcd(*sizes.values())
        fitting = [str(size) for size in range(1, common + 1) if common % size == 0]
        raise ModelLoadError(
            f"{kind}: tensor_parallel_size {world} does not divide its {', '.join(undivided)}; "
            f"sizes that do: {', '.join(fitting)}",
            param="tensor_parallel_size",
        )


def _cut_sizes(text: Any, plan: dict[str, str]) -> dict[str, int]:
    """Everything that must divide, by name. Dense layers' width need not: its last shard may be
    smaller than the others."""
    sizes = {"vocabulary entries": int(text.vocab_size)}
    if any(name.endswith(_KEYS) and style == "colwise" for name, style in plan.items()):
        heads = int(text.num_attention_heads)
        kv_heads = int(getattr(text, "num_key_value_heads", None) or heads)
        sizes |= {"attention heads": heads, "KV heads": kv_heads}
    if "moe_tp_experts" in plan.values():
        width = getattr(text, "moe_intermediate_size", None) or text.intermediate_size
        sizes["columns of an expert"] = int(width)
    return sizes


def local_specification(spec: tuple[Layer, ...], kv_heads: int) -> tuple[Layer, ...]:
    """The specification of one rank's cache: `kv_heads` of its own in every layer."""
    return tuple(replace(layer, kv_heads=kv_heads) for layer in paged_layers(spec))
