"""transformers' own DFlash class, the same random weights: the same hidden states."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from actors.drafters.checkpoints.files import open_checkpoint
from actors.drafters.checkpoints.head import TargetShape
from actors.drafters.checkpoints.table import read_head
from actors.drafters.external_kv import SessionKV, Span
from actors.drafters.learned.attend import Block
from actors.drafters.learned.block_head import BlockHead

torch.set_num_threads(1)

HIDDEN, BLOCK, WINDOW = 64, 5, 12


def window(context: int) -> torch.Tensor:
    """What a block after so many rows sees, by absolute positions. The class itself counts a
    block's positions from the end of its cache, so its windows move with the newest rows; the
    authors' code does not."""
    query, key = torch.arange(context, context + BLOCK), torch.arange(context + BLOCK)
    return ((query[:, None] - key[None]).abs() < WINDOW)[None, None]


@pytest.mark.parametrize("kinds", [["full_attention"] * 2, ["sliding_attention"] * 2])
@pytest.mark.parametrize("context", [1, 4, 30])
@torch.inference_mode()
def test_a_block_equals_transformers_own_class(
    kinds: list[str], context: int, tmp_path: Path
) -> None:
    from transformers import MuseGlimmerAssistantConfig, MuseGlimmerAssistantModel

    config = MuseGlimmerAssistantConfig(
        hidden_size=HIDDEN,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        sliding_window=WINDOW,
        layer_types=kinds,
        block_size=BLOCK,
        mask_token_id=7,
        target_layer_ids=[0, 2],
        max_position_embeddings=256,
        initializer_range=0.3,
    )
    torch.manual_seed(0)
    theirs = MuseGlimmerAssistantModel(config).eval()
    theirs.save_pretrained(tmp_path)
    head = read_head(open_checkpoint(tmp_path), TargetShape(HIDDEN, 4, 128))
    assert head.taps == (1, 3)
    ours = BlockHead(head.spec)
    ours.load_state_dict({n: head.tensors[n] for n in ours.state_dict()}, assign=True)

    features, block = torch.randn(context, 2 * HIDDEN), torch.randn(BLOCK, HIDDEN)
    wanted = theirs(
        noise_embeds=block[None],
        context_hidden_states=features[None],
        attention_mask={"full_attention": None, "sliding_attention": window(context)},
    )
    kv = SessionKV()
    made = ours.context_kv(ours.context(features), torch.arange(context))
    for layer, (k, v) in enumerate(made):
        kv.write(layer, 0, k.transpose(0, 1), v.transpose(0, 1))
    attend = Block([Span(kv, context, 0, BLOCK)], head.spec.block.masks)
    found = ours(block, torch.arange(context, context + BLOCK), attend)
    torch.testing.assert_close(found, wanted.last_hidden_state[0], atol=1e-5, rtol=1e-5)
