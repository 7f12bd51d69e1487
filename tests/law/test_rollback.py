"""KV and positions after a round are those of the committed tokens alone (S26, S31, S38; I3)."""

from __future__ import annotations

import pytest
import torch

from actors.engine.attention import ATTENTION
from actors.engine.batch import StepBatch
from actors.engine.core import Engine
from tests.drafters.exact_k import ExactKDrafter
from tests.drafters.oracle import OracleDrafter
from tests.law.harness import GREEDY, make_engine, plain, request, run
from tests.models import make_rand

MODEL = make_rand()
PROMPT = [3, 1, 4, 1, 5, 9, 2, 6]
OWN = plain(MODEL, PROMPT)


def next_token(prefix, params) -> int:
    whole = [*PROMPT, *OWN]
    return whole[len(prefix)] if len(prefix) < len(whole) else 0


@torch.inference_mode()
def full_logits(tokens: list[int]) -> torch.Tensor:
    MODEL.set_attn_implementation("sdpa")
    return MODEL(input_ids=torch.tensor([tokens]), use_cache=False).logits[0]


def watch(engine: Engine) -> list[tuple[StepBatch, torch.Tensor]]:
    """Record every forward: positions, logits, and the tokens each deciding row stands for."""
    seen: list[tuple[StepBatch, torch.Tensor]] = []
    forward = engine.target.forward

    def spy(batch, pool):
        MODEL.set_attn_implementation(ATTENTION)
        logits = forward(batch, pool)
        seen.append((batch, logits.clone()))
        return logits

    engine.target.forward = spy
    return seen


@pytest.mark.parametrize("k", [0, 1, 2, 3, 4])
def test_rejected_rows_leave_no_trace_in_the_targets_cache(k: int) -> None:
    engine = make_engine(MODEL, ExactKDrafter(next_token, vocab_size=128, k=k), 4)
    seen = watch(engine)
    engine.add(request("a", PROMPT))
    while engine.has_work:
        seq = engine.sequences["a"]
        engine.step()
        tokens = list(seq.tokens)
        if engine.has_work:
            assert seq.kv_len == len(tokens) - 1
        batch, logits = seen[-1]
        # The last row that was committed decided tokens[-1] from a clean prefix.
        kept = [p for p in batch.positions[0].tolist() if p <= len(tokens) - 2]
        row = len(kept) - 1 - (batch.ids.shape[1] - logits.shape[0])
        expected = full_logits(tokens[:-1])[-1]
        assert (logits[row] - expected).abs().max() < 1e-9
    assert engine.stats.rounds > 0


@pytest.mark.parametrize("k", [1, 4])
def test_every_row_stands_at_its_absolute_position(k: int) -> None:
    """S31, also in ragged batches and after rejection."""
    engine = make_engine(MODEL, ExactKDrafter(next_token, vocab_size=128, k=k), 4)
    seen = watch(engine)
    run(engine, request("a", PROMPT), request("b", PROMPT, max_draft_len=0))
    for batch, _ in seen:
        for span in batch.spans:
            own = batch.positions[0, span.start : span.stop].tolist()
            assert own == list(range(span.kv_stop - len(own), span.kv_stop))


def test_chunked_prefill_drafts_like_whole_prefill() -> None:
    """S38: no draft for a partial prompt, the first block the same, the text the same."""
    prompt = [(5 * i + 2) % 128 for i in range(40)]
    own = plain(MODEL, prompt)
    whole_text = [*prompt, *own]

    def successor(prefix, params) -> int:
        return whole_text[len(prefix)] if len(prefix) < len(whole_text) else 0

    blocks = []
    for max_rows in (16, 512):
        drafter = OracleDrafter(successor, vocab_size=128)
        engine = make_engine(MODEL, drafter, 4, max_rows=max_rows, max_num_seqs=2)
        seen = watch(engine)
        assert run(engine, request("a", prompt)) == {"a": own}
        assert engine.stats.drafted == engine.stats.accepted
        partial = [b for b, logits in seen if logits.shape[0] == 0]
        assert len(partial) == (2 if max_rows == 16 else 0)
        blocks.append(next(b.ids[0].tolist() for b, lg in seen if lg.shape[0] > 1))
    assert blocks[0] == blocks[1]


def test_logits_of_a_round_do_not_depend_on_the_batch_in_fp64() -> None:
    engine = make_engine(MODEL, ExactKDrafter(next_token, vocab_size=128, k=2), 4)
    texts = run(engine, *(request(str(i), PROMPT, max_draft_len=i) for i in range(5)))
    assert set(map(tuple, texts.values())) == {tuple(OWN)}
    assert len(OWN) == GREEDY.max_tokens
