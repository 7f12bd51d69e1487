"""Loading a target: safetensors or GGUF only, the dtype resolved, refusals typed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from actors.engine.attention import ATTENTION
from actors.engine.errors import ModelLoadError
from actors.engine.refusals import refuse_dropping_experts, refuse_incomplete, refuse_quantized
from actors.engine.state import state_specification

DTYPES = {"bfloat16": torch.bfloat16, "float32": torch.float32, "float64": torch.float64}


def has_bf16_units(device: str) -> bool:
    """Whether bf16 matrix products are native: CUDA, or a CPU with AVX512_BF16 or AMX."""
    if device != "cpu":
        return True
    checks = ("_is_avx512_bf16_supported", "_is_amx_tile_supported")
    return any(getattr(torch.cpu, name, lambda: False)() for name in checks)


def resolve_dtype(name: str, device: str, *, native: bool = False) -> torch.dtype:
    """A torch dtype from "auto", "bfloat16", "float32" or "float64" (ADR 0002).

    native: this project's own executor computes, which is fast in bf16 on every CPU.
    """
    if name == "auto":
        return torch.bfloat16 if native or has_bf16_units(device) else torch.float32
    if name not in DTYPES:
        raise ModelLoadError(
            f"unknown dtype {name!r}; known: auto, {', '.join(DTYPES)}", param="dtype"
        )
    return DTYPES[name]


def load_model(
    path: str, revision: str | None, dtype: torch.dtype, device: str, **distributed: Any
) -> Any:
    """A transformers causal LM in eval mode with this project's attention.

    distributed: what transformers must know to load a shard (`actors.engine.tp.loading`).
    Raises ModelLoadError: nothing there, no safetensors or GGUF weights (pickles are never
    read), weights that are refused by name or do not make the model whole, or an architecture
    without the attention interface.
    """
    keywords: dict[str, Any] = {"dtype": dtype, "attn_implementation": ATTENTION, **distributed}
    # Shapes that differ are refused below, by name; transformers' own error names none.
    keywords |= {"output_loading_info": True, "ignore_mismatched_sizes": True}
    if dtype is torch.float64:
        keywords["experts_implementation"] = "eager"  # torch's grouped product has no float64
    folder = Path(path)
    if folder.is_dir() and not list(folder.glob("*.safetensors")):
        files = sorted(folder.glob("*.gguf"))
        if not files:
            raise ModelLoadError(f"{path}: neither *.safetensors nor *.gguf weights", param="model")
        from transformers import GgufConfig

        keywords |= {
            "gguf_file": files[0].name,
            "quantization_config": GgufConfig(dequantize=True),
        }
    else:
        keywords["use_safetensors"] = True
        config = load_config(path, revision)
        refuse_quantized(config)
        refuse_dropping_experts(config)
        state_specification(config)  # refuses states that cannot be rolled back
    try:
        model, found = AutoModelForCausalLM.from_pretrained(path, revision=revision, **keywords)
    except (OSError, ValueError, KeyError, ImportError, RuntimeError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else repr(error)
        raise ModelLoadError(f"cannot load {path!r}: {reason}", param="model") from error
    refuse_incomplete(path, found)
    return model.to(device).eval()


def load_config(path: str, revision: str | None = None) -> Any:
    """The transformers config of a folder (config.json, else a GGUF file's) or Hugging Face id."""
    folder = Path(path)
    files = [] if (folder / "config.json").exists() else sorted(folder.glob("*.gguf"))
    keywords = {"gguf_file": files[0].name} if files else {}
    try:
        return AutoConfig.from_pretrained(path, revision=revision, **keywords)
    except (OSError, ValueError) as error:
        raise ModelLoadError(f"cannot read the config of {path!r}: {error}", "model") from error


def end_tokens(model: Any) -> frozenset[int]:
    """EOS ids of the generation config, else of the config."""
    for holder in (getattr(model, "generation_config", None), model.config):
        found = getattr(holder, "eos_token_id", None)
        if found is not None:
            return frozenset(found if isinstance(found, list | tuple) else [found])
    return frozenset()


def refuse_moving_rope(config: Any, max_model_len: int) -> None:
    """Refuse frequencies that move with the longest sequence of a batch, where they would move.

    transformers picks one table for the whole packed batch, so batch mates would change each
    other's text and cached keys would keep old frequencies (law L1).
    """
    text = config.get_text_config() if hasattr(config, "get_text_config") else config
    rope = getattr(text, "rope_parameters", None) or {}
    tables = [rope, *(value for value in rope.values() if isinstance(value, dict))]
    for table in tables:
        kind = table.get("rope_type", "default")
        if kind not in ("dynamic", "longrope"):
            continue
        original = table.get("original_max_position_embeddings") or (
            getattr(text, "original_max_position_embeddings", None) if kind == "longrope" else None
        )
        fixed_up_to = int(original or text.max_position_embeddings)
        if max_model_len > fixed_up_to:
            raise ModelLoadError(
                f"{text.model_type}: {kind} rotary positions move beyond {fixed_up_to} tokens with "
                f"the longest sequence of a batch; serve it with max_model_len {fixed_up_to}",
                param="max_model_len",
            )


def context_length(config: Any, wanted: int | None) -> int:
    """max_model_len: the config's own unless a smaller one is wanted."""
    text = config.get_text_config() if hasattr(config, "get_text_config") else config
    own = int(getattr(text, "max_position_embeddings", 0) or 0)
    if wanted is None:
        return own or 2048
    if own and wanted > own:
        raise ModelLoadError(
            f"max_model_len {wanted} is more than the model's {own} positions", "max_model_len"
        )
    return wanted
