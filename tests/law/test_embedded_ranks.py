"""The embedded model over three ranks: nine query heads, three KV heads, tied embeddings.

What the cut model's logits differ by is rounding and nothing else: computed in fp64 throughout they
are the whole model's, and in fp32 those of the one are no farther from fp64's than the other's.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers.models.llama.modeling_llama import LlamaRMSNorm

from actors.drafters.config import DrafterConfig
from actors.drafters.table import build_drafter
from actors.engine.loading import load_model
from actors.engine.options import EngineOptions
from actors.engine.target import Target
from actors.engine.tp.rendezvous import Rendezvous
from actors.exchange.local import LocalPort
from actors.sampling.params import SamplingParams
from cluster.models.resolve import resolve
from tests.law.harness import request, run
from tests.models import make_rand, save_tiny
from tests.ranks import RankMain, Recorded, be_rank, engine_over, group

RTOL = 1e-5
EXACT = 1e-10
DTYPES = {"float32": torch.float32, "float64": torch.float64}
Steps = list[torch.Tensor]
"""Logits of each step, [rows, vocabulary]."""


def own_norm(self: LlamaRMSNorm, states: torch.Tensor) -> torch.Tensor:
    """In the dtype of the model. transformers norms in fp32 even in an fp64 model, where two sums
    that differ in their last bit may be rounded to neighbours, 6e-8 apart."""
    mean = states.pow(2).mean(-1, keepdim=True)
    return self.weight * (states * torch.rsqrt(mean + self.variance_epsilon))


def be_exact_rank(options: EngineOptions, rendezvous: Rendezvous, rank: int) -> None:
    LlamaRMSNorm.forward = own_norm  # type: ignore[method-assign]
    be_rank(options, rendezvous, rank)


def both(
    folder: str, dtype: str, vocab: int, max_tokens: int, main: RankMain = be_rank
) -> tuple[Steps, Steps]:
    """The same text by the whole model and by three ranks, drafted by n-grams."""
    prompt = [(97 * i) % vocab for i in range(40)]
    whole = Target(load_model(folder, None, DTYPES[dtype], "cpu"))
    drafting = DrafterConfig(method="ngram", target_vocab_size=vocab)
    greedy = SamplingParams(temperature=0.0, max_tokens=max_tokens)
    accounts, texts = [], []
    with group(folder, 3, dtype=dtype, main=main) as cut:
        for target in (whole, None):
            port = LocalPort(build_drafter(drafting), vocab_size=vocab)
            engine = engine_over(target, port) if target else cut.engine(port)
            accounts.append(Recorded(engine))
            texts.append(run(engine, request("a", prompt, greedy)))
    assert texts[0] == texts[1]
    return accounts[0].logits, accounts[1].logits


def exact(folder: str, vocab: int, max_tokens: int) -> tuple[Steps, Steps]:
    """In fp64, the norms as well."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LlamaRMSNorm, "forward", own_norm)
        return both(folder, "float64", vocab, max_tokens, be_exact_rank)


def farthest(ours: Steps, theirs: Steps) -> float:
    """The largest difference of any logit."""
    pairs = zip(ours, theirs, strict=True)
    return max((a.double() - b.double()).abs().max().item() for a, b in pairs)


def largest(logits: Steps) -> float:
    return max(step.abs().max().item() for step in logits)


def test_three_ranks_of_three_heads_each_compute_the_logits_of_one_process(tmp_path: Path) -> None:
    """The embedded model's heads, in small."""
    model = make_rand(vocab=129, hidden=72, heads=9, kv_heads=3, tie_word_embeddings=True)
    whole, cut = exact(save_tiny(model, tmp_path), 129, 24)
    assert farthest(whole, cut) <= EXACT


@pytest.mark.model
@pytest.mark.timeout(600)
def test_three_ranks_give_the_logits_of_the_embedded_model() -> None:
    """Logits reach 31, where a unit in the last place of fp32 is 2e-6, and the whole model's own
    are some 4e-5 from fp64's: the bound is relative to the largest, and cutting adds nothing."""
    folder = str(resolve("smollm2"))
    truth, truth_cut = exact(folder, 49152, 6)
    assert farthest(truth, truth_cut) <= EXACT
    whole, cut = both(folder, "float32", 49152, 6)
    assert farthest(whole, cut) <= RTOL * largest(whole)
    assert farthest(cut, truth) <= 2 * farthest(whole, truth)
