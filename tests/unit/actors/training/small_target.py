"""A tiny random target on disk, and what it writes, with its hidden states."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import nn

from actors.training.examples import Example
from actors.training.mechanisms import default_taps
from tests.models import make_rand, save_tiny

LAYERS, HIDDEN, VOCAB = 8, 64, 128
TAPS = default_taps(LAYERS)


def small_target(seed: int = 0, **fields: Any) -> Any:
    """In fp32, of weights that bf16 can say."""
    model = make_rand(layers=LAYERS, dtype=torch.float32, seed=seed, **fields)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(parameter.to(torch.bfloat16))
    return model


def saved_target(folder: Path, seed: int = 0, **fields: Any) -> Any:
    model = small_target(seed, **fields)
    save_tiny(model, folder)
    return model


@torch.no_grad()
def written(model: Any, prompt: int, length: int, seed: int = 0) -> Example:
    """A random prompt and what the target writes after it greedily; features in fp32."""
    random = torch.Generator().manual_seed(seed)
    tokens = torch.randint(0, VOCAB, (prompt,), generator=random)
    while len(tokens) < length:
        following = model(tokens[None], use_cache=False).logits[0, -1].argmax()
        tokens = torch.cat((tokens, following[None]))
    return Example(tokens, prompt, "ab"[seed % 2], _features(model, tokens[:-1]))


def _features(model: Any, tokens: torch.Tensor) -> torch.Tensor:
    """What goes into layer t, and for the last tap into the final norm; [rows, taps · hidden]."""
    at: list[nn.Module] = [*model.model.layers, model.model.norm]
    held: dict[int, torch.Tensor] = {}
    hooks = [
        at[tap].register_forward_pre_hook(lambda module, args, t=tap: held.update({t: args[0][0]}))
        for tap in TAPS
    ]
    model(tokens[None], use_cache=False)
    for hook in hooks:
        hook.remove()
    return torch.cat([held[tap] for tap in TAPS], -1)
