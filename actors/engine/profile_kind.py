"""Of which engines a profile speaks: whatever decides about a forward's time."""

from __future__ import annotations

import platform
from dataclasses import dataclass
from pathlib import Path

import torch
import transformers

from actors.engine.cuda.target import GraphTarget
from actors.engine.executor import Executor
from actors.engine.native.build import find_compiler, fingerprint
from actors.engine.native.target import NativeTarget
from actors.engine.options import EngineOptions


@dataclass(frozen=True, slots=True)
class Kind:
    """model: digest of its config. executor: name and fingerprint. ranks: that share the target.
    context: the longest there is. features: numbers of a row of them."""

    model: str
    dtype: str
    executor: str
    device: str
    threads: int
    ranks: int
    context: int
    features: int


def kind_of(options: EngineOptions, digest: str, target: Executor, max_model_len: int) -> Kind:
    """digest: of the model's config."""
    return Kind(
        model=digest,
        dtype=str(target.info.dtype).removeprefix("torch."),
        executor=executor_name(target),
        device=device_name(target.device),
        threads=options.threads or torch.get_num_threads(),
        ranks=options.tensor_parallel_size,
        context=max_model_len,
        features=target.feature_dim,
    )


def executor_name(target: Executor) -> str:
    """With a fingerprint of its code, or its libraries' versions."""
    if isinstance(target, NativeTarget):
        return f"native {fingerprint(find_compiler())}"
    kind = "graphs" if isinstance(target, GraphTarget) else "eager"
    return f"{kind} transformers {transformers.__version__} torch {torch.__version__}"


def device_name(device: str) -> str:
    """Of the accelerator, or of the processor."""
    if device.startswith("cuda"):
        return torch.cuda.get_device_name(device)
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, "") or platform.processor() or platform.machine()
