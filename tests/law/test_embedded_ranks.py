"""The embedded model over three ranks: nine query heads, three KV heads, tied embeddings."""

from __future__ import annotations

import pytest
import torch

from actors.drafters.config import DrafterConfig
from actors.drafters.table import build_drafter
from actors.engine.loading import load_model
from actors.engine.target import Target
from actors.exchange.local import LocalPort
from cluster.models.resolve import resolve
from tests.law.harness import request, run
from tests.ranks import Recorded, engine_over, group

RTOL = 1e-5


@pytest.mark.model
@pytest.mark.timeout(600)
def test_three_ranks_give_the_logits_of_the_embedded_model() -> None:
    """Logits reach 33, where a unit in the last place of fp32 is 4e-6: the bound is relative to
    the largest."""
    folder = str(resolve("smollm2"))
    prompt = [(97 * i) % 49152 for i in range(40)]
    whole = Target(load_model(folder, None, torch.float32, "cpu"))
    drafting = DrafterConfig(method="ngram", target_vocab_size=49152)
    accounts, texts = [], []
    with group(folder, 3) as cut:
        for target in (whole, None):
            port = LocalPort(build_drafter(drafting), vocab_size=49152)
            engine = engine_over(target, port) if target else cut.engine(port)
            accounts.append(Recorded(engine))
            texts.append(run(engine, request("a", prompt)))
    assert texts[0] == texts[1]
    for theirs, ours in zip(accounts[0].logits, accounts[1].logits, strict=True):
        torch.testing.assert_close(ours, theirs, atol=RTOL * theirs.abs().max().item(), rtol=0.0)
