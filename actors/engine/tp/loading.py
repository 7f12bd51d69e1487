"""Loading one rank's shard of a target, and proof that it is one."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch
from torch.distributed.tensor import DTensor
from transformers.distributed.configuration_utils import DistributedConfig
from transformers.distributed.tensor_parallel import get_kv_heads_per_rank

from actors.engine.errors import ModelLoadError
from actors.engine.loading import load_config, load_model
from actors.engine.tp.sizes import check_divides


def load_shard(path: str, revision: str | None, dtype: torch.dtype, device: str, world: int) -> Any:
    """This rank's shard; every rank calls it at the same time, the process group being there.

    Raises ModelLoadError, as `check_cuttable` does, and for a model that came whole.
    """
    check_cuttable(path, revision, device, world)
    # transformers picks the device by it; Ray shows each rank its own accelerator alone.
    os.environ["LOCAL_RANK"] = "0"
    plan = DistributedConfig(tp_size=world, tp_plan="auto")
    model = load_model(path, revision, dtype, device, distributed_config=plan)
    check_sharded(model, world)
    return model


def check_cuttable(path: str, revision: str | None, device: str, world: int) -> None:
    """Raises ModelLoadError for what can be known to fail before anything is loaded: weights
    that are no safetensors, sizes that `world` does not divide, and CPUs where transformers would
    take an accelerator it sees."""
    folder = Path(path)
    if folder.is_dir() and not list(folder.glob("*.safetensors")):
        raise ModelLoadError(
            f"{path}: only *.safetensors weights can be cut; serve these with "
            "tensor_parallel_size 1",
            param="tensor_parallel_size",
        )
    check_divides(load_config(path, revision), world)
    if device == "cpu" and torch.accelerator.is_available():
        raise ModelLoadError(
            "tensor parallelism on CPUs needs accelerators hidden (CUDA_VISIBLE_DEVICES='')",
            param="tensor_parallel_size",
        )


def check_sharded(model: Any, world: int) -> None:
    """Raises ModelLoadError unless every decoder layer really is cut in `world`.

    transformers loads a model whole, without a word, where it finds no reason to cut it: every
    rank would then add its whole result to the others'.
    """
    whole = [
        f"layer {number}"
        for number, layer in enumerate(model.get_decoder().layers)
        if not any(_is_cut(weight, world) for weight in layer.parameters())
    ]
    if whole:
        raise ModelLoadError(
            f"{model.config.model_type}: {whole[0]} of {len(whole)} was not cut in {world}",
            param="tensor_parallel_size",
        )


def _is_cut(weight: torch.Tensor, world: int) -> bool:
    if not isinstance(weight, DTensor) or weight.device_mesh.size() != world:
        return False
    return any(
        weight.to_local().shape[dim] < weight.shape[dim]
        for placement in weight.placements
        if (dim := getattr(placement, "dim", None)) is not None
    )


def local_kv_heads(model: Any, world: int) -> int:
    """KV heads of one rank: its share, or all of them where the plan leaves attention whole."""
    text = model.config.get_text_config()
    heads = int(getattr(text, "num_key_value_heads", None) or text.num_attention_heads)
    local = get_kv_heads_per_rank(model.tp_plan, heads, world)
    if local is None:
        raise ModelLoadError(f"{heads} KV heads cannot be cut in {world}", "tensor_parallel_size")
    return int(local)
