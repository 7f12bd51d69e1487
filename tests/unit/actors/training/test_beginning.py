"""A young drafter says little, and its layers leave what enters them as it was."""

from __future__ import annotations

import pytest
import torch

from actors.drafters.learned.target_parts import TargetParts
from actors.training.beginning import START, place_tokens
from actors.training.block_trainee import BlockTrainee
from actors.training.errors import TrainingError
from actors.training.mechanisms import BUILDERS, Shape, build
from actors.training.packing import all_anchors, pack
from tests.unit.actors.training.small import HIDDEN, VOCAB, example, parts

IDS = torch.arange(0, VOCAB, 2)


def target() -> TargetParts:
    made = parts()
    config = {
        "num_hidden_layers": 8,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 4,
        "rms_norm_eps": 1e-6,
        "max_position_embeddings": 64,
    }
    return TargetParts(made.embedding, made.head, made.norm, config, made.digest)


@torch.no_grad()
def test_layers_add_nothing_at_first() -> None:
    made = build("dspark", target(), IDS, Shape(intermediate=8, drafts=3, markov_rank=4))
    assert isinstance(made, BlockTrainee)
    e = example(12, 4, 0)
    wide = torch.randn(11, 4 * HIDDEN, generator=torch.Generator().manual_seed(0))
    e = type(e)(e.tokens, e.prompt_len, e.category, wide.to(torch.bfloat16))
    hidden = made._hidden([e], pack([e], [all_anchors(e)], 3), 3)
    rows = parts().embedding[e.tokens[4:11]]
    rows = rows * torch.rsqrt(rows.pow(2).mean(-1, keepdim=True) + 1e-6)
    torch.testing.assert_close(hidden[:, 0], rows * (START * parts().norm), atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_tokens_that_are_alike_begin_alike() -> None:
    embedding = torch.randn(VOCAB, HIDDEN, generator=torch.Generator().manual_seed(1))
    embedding[7] = embedding[3] + 1e-3
    table = torch.nn.Embedding(VOCAB, 4)
    place_tokens(table, embedding)
    distances = (table.weight - table.weight[3]).norm(dim=1)
    assert int(distances.argsort()[1]) == 7


@pytest.mark.parametrize("mechanism", sorted(BUILDERS))
def test_a_mask_token_outside_the_vocabulary_is_refused(mechanism: str) -> None:
    with pytest.raises(TrainingError, match="mask token"):
        build(mechanism, target(), IDS, Shape(mask_token=VOCAB))
