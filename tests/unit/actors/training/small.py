"""Small answers and target parts for training tests: real shapes of a tiny random target."""

from __future__ import annotations

import torch

from actors.drafters.learned.block_model import BlockSpec
from actors.drafters.learned.spec import LayerSpec
from actors.drafters.learned.target_parts import TargetParts
from actors.training.examples import Example

HIDDEN, VOCAB, TAPS = 16, 40, (1, 2)
LAYER = LayerSpec(hidden=HIDDEN, heads=4, kv_heads=2, head_dim=8, intermediate=24, qk_norm=True)


def parts(seed: int = 0) -> TargetParts:
    random = torch.Generator().manual_seed(seed)
    table = torch.randn(VOCAB, HIDDEN, generator=random)
    norm = 1 + 0.1 * torch.randn(HIDDEN, generator=random)
    return TargetParts(table, table, norm, {"rms_norm_eps": 1e-6, "num_hidden_layers": 4}, "digest")


def example(length: int = 12, prompt_len: int = 4, seed: int = 0) -> Example:
    random = torch.Generator().manual_seed(seed)
    tokens = torch.randint(0, VOCAB, (length,), generator=random)
    rows = torch.randn(length - 1, (len(TAPS) + 1) * HIDDEN, generator=random)
    return Example(tokens, prompt_len, "ab"[seed % 2], rows.to(torch.bfloat16))


def block_spec(*, next_token: bool, drafts: int = 3, causal: bool = False) -> BlockSpec:
    return BlockSpec(
        layer=LAYER,
        layers=2,
        taps=TAPS,
        target_hidden=HIDDEN,
        block=drafts if next_token else drafts + 1,
        mask_token=3,
        next_token=next_token,
        causal=causal,
    )


def randomised(module: torch.nn.Module, seed: int = 0) -> None:
    """Weights of every tensor random, so that nothing hides behind a zero or a one."""
    random = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=random) * 0.3)
