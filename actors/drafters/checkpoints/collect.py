"""From names in a file to canonical names: every tensor is taken, left out by name, or refused."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import nn

from actors.drafters.checkpoints.files import Checkpoint, refusal

Shape = tuple[int, ...]
Rename = Callable[[str], str | None]
"""File name -> canonical name; None for a tensor that is not this drafter's business."""


def canonical(checkpoint: Checkpoint, rename: Rename) -> dict[str, str]:
    """Canonical name -> name in the file. Raises DrafterLoadError where two become one."""
    names: dict[str, str] = {}
    for name in checkpoint.files:
        to = rename(name)
        if to is None:
            continue
        if to in names:
            raise refusal(f"{name} and {names[to]} both mean {to}")
        names[to] = name
    return names


def shapes_of(checkpoint: Checkpoint, rename: Rename) -> dict[str, Shape]:
    """Shapes by canonical name."""
    return {to: checkpoint.shapes[name] for to, name in canonical(checkpoint, rename).items()}


def collect(
    checkpoint: Checkpoint,
    rename: Rename,
    required: Mapping[str, Shape],
    optional: Mapping[str, Shape] | None = None,
    ignored: Sequence[str] = (),
) -> dict[str, torch.Tensor]:
    """Tensors by canonical name: all of `required`, those of `optional` that are there.

    Raises DrafterLoadError: a name that is none of them (a tensor nobody understands is never
    dropped in silence: it would cost acceptance), one that is missing, another shape, NaN.
    """
    wanted = {**required, **(optional or {})}
    names = canonical(checkpoint, rename)
    unknown = sorted(names[to] for to in names if to not in wanted and to not in ignored)
    if unknown:
        raise refusal(f"{checkpoint.folder}: unknown tensors: {_listed(unknown)}")
    missing = sorted(to for to in required if to not in names)
    if missing:
        raise refusal(f"{checkpoint.folder}: missing tensors: {_listed(missing)}")
    for to, name in names.items():
        if to in wanted and checkpoint.shapes[name] != wanted[to]:
            raise refusal(
                f"{name} has shape {list(checkpoint.shapes[name])}, not {list(wanted[to])}"
            )
    return {to: checkpoint.tensor(name) for to, name in names.items() if to in wanted}


def module_shapes(make: Callable[[], nn.Module]) -> dict[str, Shape]:
    """Names and shapes of a module's tensors, made without memory."""
    with torch.device("meta"):
        return {name: tuple(t.shape) for name, t in make().state_dict().items()}


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - 4} more" if len(names) > 4 else ""
    return ", ".join(names[:4]) + more
