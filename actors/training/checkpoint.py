"""A run's state in one file, so that whatever ends it, it goes on from the last one whole."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import nn

from actors.training.averaged import Averaged
from actors.training.errors import TrainingError

NAME = "checkpoint.safetensors"
_MOMENTS = ("exp_avg", "exp_avg_sq")


@dataclass(slots=True)
class RunState:
    """epoch and batch: the next to train on. positions: answer positions drafted from so far.
    cpu_s, wall_s: of the training alone, over all its runs. best: acceptance length. drafted: so
    many tokens could be drafted when it was measured; 0 where nothing was said of it."""

    step: int = 0
    epoch: int = 0
    batch: int = 0
    positions: int = 0
    cpu_s: float = 0.0
    wall_s: float = 0.0
    best: float = 0.0
    drafted: int = 0


def save(
    folder: Path,
    module: nn.Module,
    averaged: Averaged,
    optimizer: torch.optim.Optimizer,
    state: RunState,
) -> None:
    tensors: dict[str, torch.Tensor] = {}
    for name, parameter in module.named_parameters():
        tensors[f"weights.{name}"] = parameter.detach()
        tensors[f"averaged.{name}"] = averaged.weights[name]
        for moment in _MOMENTS:
            if moment in optimizer.state[parameter]:
                tensors[f"{moment}.{name}"] = optimizer.state[parameter][moment]
    part = folder / f"{NAME}.part"
    facts = {"state": json.dumps(asdict(state)), "averaged_steps": str(averaged.steps)}
    save_file({n: t.contiguous() for n, t in tensors.items()}, part, metadata=facts)
    os.replace(part, folder / NAME)


@torch.no_grad()
def load(
    folder: Path, module: nn.Module, averaged: Averaged, optimizer: torch.optim.Optimizer
) -> RunState | None:
    """The state to go on from; None when there is none. Raises TrainingError for a checkpoint of
    another shape."""
    path = folder / NAME
    if not path.exists():
        return None
    try:
        with safe_open(path, framework="pt") as opened:
            facts = opened.metadata() or {}
            state = RunState(**json.loads(facts["state"]))
            held = set(opened.keys())
            for name, parameter in module.named_parameters():
                parameter.copy_(opened.get_tensor(f"weights.{name}"))
                averaged.weights[name].copy_(opened.get_tensor(f"averaged.{name}"))
                if f"exp_avg.{name}" in held:
                    optimizer.state[parameter] = {
                        "step": torch.tensor(float(state.step), device="cpu"),
                        **{
                            m: opened.get_tensor(f"{m}.{name}").to(parameter.device, copy=True)
                            for m in _MOMENTS
                            if f"{m}.{name}" in held
                        },
                    }
            averaged.steps = int(facts["averaged_steps"])
    except (OSError, SafetensorError, KeyError, ValueError, TypeError, RuntimeError) as error:
        raise TrainingError(
            f"{path} does not fit this run ({error}); remove it or choose another --output",
            "output",
        ) from error
    return state
