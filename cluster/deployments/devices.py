"""Which device a process computes on."""

from __future__ import annotations


def resolve_device(device: str) -> str:
    """What "auto" stands for: the accelerator Ray gave this process, else the CPU."""
    if device != "auto":
        return device
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"
