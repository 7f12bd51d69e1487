"""Puts the mixers in the place of a model's recurrent layers, for packed steps alone."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from actors.engine.hybrid.mixers import MIXERS, Mixer

if TYPE_CHECKING:
    from actors.engine.attention import PagedStep


def install(model: Any) -> None:
    """Let every recurrent layer compute packed steps; any other call is transformers' own. A model
    that has been treated already is left as it is."""
    for module in model.modules():
        mixer = MIXERS.get(type(module).__name__)
        if mixer is not None and not isinstance(module.forward, _Packed):
            module.forward = _Packed(module, mixer)


class _Packed:
    """A layer's forward: over the step's rows where there is a step, else as it was."""

    def __init__(self, module: Any, mixer: Mixer) -> None:
        self._module = module
        self._mixer = mixer
        self._own: Callable[..., torch.Tensor] = module.forward

    def __call__(self, hidden_states: torch.Tensor, **keywords: Any) -> torch.Tensor:
        step: PagedStep | None = keywords.get("paged_step")
        if step is None:
            return self._own(hidden_states, **keywords)
        return mix(self._module, self._mixer, hidden_states[0], step)[None]


def mix(module: Any, mixer: Mixer, hidden: torch.Tensor, step: PagedStep) -> torch.Tensor:
    """One recurrent layer over packed rows [rows, H]: each span after its own request's state."""
    layer = int(module.layer_idx)
    states = step.pool.states[layer]
    step.layers.append(layer)
    rows, gate = mixer.project(module, hidden)
    compute = partial(mixer.compute, module)
    mixed = [
        states.run(
            span.table.place,
            span.kv_stop - (span.stop - span.start),
            {name: tensor[span.start : span.stop] for name, tensor in rows.items()},
            compute,
        )
        for span in step.batch.spans
    ]
    return mixer.output(module, torch.cat(mixed), gate)
