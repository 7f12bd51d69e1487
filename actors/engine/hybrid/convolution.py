"""Causal depthwise convolution of a few new rows, given the rows before them."""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F


def convolve(
    inputs: torch.Tensor, window: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None
) -> torch.Tensor:
    """Rows [n, channels] of a causal convolution with weight [channels, 1, kernel].

    inputs: [n, channels]; window: the kernel - 1 rows before them, zeros before the text begins.
    """
    rows = torch.cat([window, inputs]).T[None]
    return F.conv1d(rows, weight, bias, groups=inputs.shape[1])[0].T


def slide(window: torch.Tensor, inputs: torch.Tensor) -> torch.Tensor:
    """The window after `inputs`: the last rows of both, as many as before."""
    return torch.cat([window, inputs])[inputs.shape[0] :]


def fold(
    carried: Mapping[str, torch.Tensor], noted: Mapping[str, torch.Tensor]
) -> dict[str, torch.Tensor]:
    """The state of a `Convolution` after the rows noted down."""
    return {"window": slide(carried["window"], noted["inputs"])}
