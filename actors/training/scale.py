"""How large each recorded feature is. Hidden states of one layer differ by a factor of a hundred
between dimensions, and layers among themselves by ten; no optimizer likes that. So `fc` is trained
on features of size one, and the scale goes into its weights when it leaves."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from actors.training.examples import Example

NAME = "feature-scale.safetensors"
_ENOUGH = 200


def feature_scale(folder: Path, examples: Sequence[Example]) -> torch.Tensor:
    """Root mean squares over answers [taps · hidden], chosen once: a checkpoint's weights are in
    these units."""
    path = folder / NAME
    if not path.exists():
        rows = torch.cat([e.features[e.prompt_len :] for e in examples[:_ENOUGH]]).float()
        save_file({"scale": rows.pow(2).mean(0).sqrt().clamp(min=1e-3)}, path)
    scale: torch.Tensor = load_file(path)["scale"]
    return scale.to(torch.get_default_device())
