"""A shape from a model's `config.json`, by the names that transformers gives the fields."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from policies.codesign.shape import Experts, Latent, Shape


class ConfigError(ValueError):
    """A configuration that says too little, or something that is not planned for."""


def read(path: Path) -> Shape:
    """Of a model's folder, or of the file itself. Raises ConfigError naming the file."""
    file = path / "config.json" if path.is_dir() else path
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{file}: {error.strerror}") from None
    except ValueError as error:
        raise ConfigError(f"{file}: not JSON ({error})") from None
    if not isinstance(config, dict):
        raise ConfigError(f"{file}: a JSON object is wanted")
    try:
        return shape_of(config, path.resolve().parent.name if path.is_file() else path.name)
    except ValueError as error:
        raise ConfigError(f"{file}: {error}") from None


def shape_of(config: Mapping[str, Any], name: str) -> Shape:
    """Raises ConfigError for missing fields and for layers that are not planned for."""
    config = {**config, **(config.get("text_config") or {})}
    kinds = list(config.get("layer_types") or ())
    strange = sorted(set(kinds) - {"full_attention", "sliding_attention"})
    if strange:
        raise ConfigError(f"layers of type {', '.join(strange)} are not planned for")
    hidden, heads = _size(config, "hidden_size"), _size(config, "num_attention_heads")
    layers = _size(config, "num_hidden_layers")
    experts = _experts(config)
    plain = layers == 0 or experts is None or experts.dense_layers > 0
    return Shape(
        name=name,
        hidden=hidden,
        layers=layers,
        heads=heads,
        kv_heads=int(config.get("num_key_value_heads") or heads),
        head_dim=int(config.get("head_dim") or hidden // heads),
        intermediate=_size(config, "intermediate_size") if plain else 0,
        vocab=_size(config, "vocab_size"),
        tied=bool(config.get("tie_word_embeddings", False)),
        experts=experts,
        latent=_latent(config),
        windowed_layers=kinds.count("sliding_attention"),
        window=int(config.get("sliding_window") or 0),
    )


def _experts(config: Mapping[str, Any]) -> Experts | None:
    names = ("num_local_experts", "num_experts", "n_routed_experts")
    count = next((int(config[name]) for name in names if config.get(name)), 0)
    if not count:
        return None
    if int(config.get("decoder_sparse_step") or 1) != 1 or config.get("mlp_only_layers"):
        raise ConfigError("models that route in some layers only are not planned for")
    width = int(config.get("moe_intermediate_size") or _size(config, "intermediate_size"))
    shared = int(config.get("shared_expert_intermediate_size") or 0)
    shared += int(config.get("n_shared_experts") or 0) * width
    dense = int(config.get("first_k_dense_replace") or 0)
    return Experts(count, _size(config, "num_experts_per_tok"), width, shared, dense)


def _latent(config: Mapping[str, Any]) -> Latent | None:
    if not config.get("kv_lora_rank"):
        return None
    names = ("q_lora_rank", "kv_lora_rank", "qk_rope_head_dim", "qk_nope_head_dim", "v_head_dim")
    return Latent(*(_size(config, name) for name in names))


def _size(config: Mapping[str, Any], name: str) -> int:
    value = config.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ConfigError(f"{name} is {value!r}; a positive whole number is wanted")
    return value
