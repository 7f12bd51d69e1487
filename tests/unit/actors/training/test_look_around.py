"""Where EAGLE-3's attention looks before it has learned anything."""

from __future__ import annotations

import pytest
import torch

from actors.drafters.learned.eagle_model import EagleSpec
from actors.drafters.learned.spec import LayerSpec
from actors.training.chain_models import EagleChain
from actors.training.examples import Example
from actors.training.look_around import look_around

HIDDEN, VOCAB, HEADS, LENGTH = 64, 12, 5, 40
NEAR, BACK, SAME = 0, 2, 3


def begun() -> tuple[EagleChain, torch.Tensor, Example]:
    """Five heads: two look at their own entry, one at the entry before, two at the same token. Rows
    say which token is theirs."""
    torch.manual_seed(0)
    layer = LayerSpec(
        HIDDEN, HEADS, HEADS, 64, 32, rope={"rope_type": "default", "rope_theta": 1e5}
    )
    chain = EagleChain(EagleSpec(layer, 1, (1,), HIDDEN, VOCAB))
    embedding = torch.randn(VOCAB, HIDDEN)
    tokens = torch.randint(0, VOCAB, (LENGTH,))
    rows = embedding[tokens[:-1]] @ torch.randn(HIDDEN, HIDDEN) / 8 + 1.0
    e = Example(tokens, 2, "any", rows.to(torch.bfloat16))
    chain.set_scale(torch.ones(HIDDEN))
    chain.begin(torch.ones(HIDDEN))
    look_around(chain, embedding, [e])
    return chain, embedding, e


@pytest.fixture(scope="module")
def weights() -> torch.Tensor:
    """Of the last entry's attention, [heads, entries]."""
    chain, embedding, e = begun()
    entries = e.length - 2
    features = e.features[:entries].float()
    x = chain.read(embedding[e.tokens[1 : entries + 1]], features)
    attention, rope = chain.layer.self_attn, chain.module.rope
    table = rope(torch.arange(entries))
    q = attention.query(x, rope, table)[-1]
    k, _ = attention.key_value(x, rope, table)
    return torch.softmax(torch.einsum("hd,ehd->he", q, k) / 8, -1).detach()


@pytest.mark.parametrize(("head", "back"), [(NEAR, 0), (1, 0), (BACK, 1)])
def test_heads_begin_at_the_own_entry_and_those_before(
    weights: torch.Tensor, head: int, back: int
) -> None:
    assert int(weights[head].argmax()) == weights.shape[1] - 1 - back
    assert float(weights[head].max()) > 0.8


def test_a_head_begins_where_the_newest_token_stood_before(weights: torch.Tensor) -> None:
    _, _, e = begun()
    entries = weights.shape[1]
    earlier = e.tokens[:entries] == e.tokens[entries]
    assert 0 < int(earlier.sum()) < entries
    assert float(weights[SAME][earlier].sum()) > 0.8
