"""Where a learned drafter computes, and in what precision.

On a CPU its linear maps run on the executor's kernels, bf16 weights and fp32 activations, which is
several times as fast as torch there; without a compiler they are fp32 in torch, whose bf16 products
are slow on CPUs without units for them. On an accelerator everything is bf16.
"""

from __future__ import annotations

import logging
from pathlib import Path

import torch
from torch import nn

from actors.drafters.config import DrafterConfig
from actors.drafters.errors import DrafterLoadError
from actors.engine.errors import EngineError
from actors.engine.loading import resolve_dtype

logger = logging.getLogger(__name__)

HEAVY = 1 << 20
"""Weights of a map that torch shares out among threads."""


def weight_dtype(config: DrafterConfig) -> torch.dtype:
    """What weights are read in. Raises DrafterLoadError."""
    native = config.device == "cpu" and bool(config.compile_cache)
    try:
        return resolve_dtype(config.dtype, config.device, native=native)
    except EngineError as error:
        raise DrafterLoadError(str(error), "dtype") from error


def place(model: nn.Module, config: DrafterConfig) -> tuple[torch.dtype, int | None]:
    """Move `model` to where it computes, for good. Returns the dtype of its activations, and the
    threads that torch should take: what is left to it beside kernels is worth one."""
    model.requires_grad_(False).eval()
    dtype = weight_dtype(config)
    if config.device != "cpu" or dtype is torch.float64:
        model.to(config.device, dtype)
        return dtype, config.threads
    if config.compile_cache and _on_kernels(model, dtype, config):
        return torch.float32, config.threads if _heavy(model) else 1
    model.float()
    return torch.float32, config.threads


def _on_kernels(model: nn.Module, dtype: torch.dtype, config: DrafterConfig) -> bool:
    from actors.drafters.learned.packed_layer import pack_layers
    from actors.drafters.learned.packed_norm import pack_norms
    from actors.engine.native.build import BuildError, load
    from actors.engine.native.crew import Crew
    from actors.engine.native.linear import pack_linears

    try:
        compiled = load(Path(config.compile_cache))
        crew = Crew(compiled, config.threads or torch.get_num_threads())
    except (BuildError, EngineError) as error:
        logger.warning("the drafter computes with torch: %s", error)
        return False
    pack_layers(model, crew, dtype)
    pack_linears(model, crew, dtype)
    pack_norms(model, crew)
    _widen(model)
    return True


def _heavy(model: nn.Module) -> bool:
    """Whether torch still multiplies large matrices: layers of transformers' own have some."""
    return any(
        parameter.numel() >= HEAVY
        for module in model.modules()
        if not isinstance(module, nn.Embedding)
        for parameter in module.parameters(recurse=False)
    )


def _widen(model: nn.Module) -> None:
    """What is left of a model, norms above all, to fp32. Tables of tokens stay as they are: few of
    their rows are ever read."""
    for module in model.modules():
        if not isinstance(module, nn.Embedding):
            for parameter in module.parameters(recurse=False):
                parameter.data = parameter.data.float()
