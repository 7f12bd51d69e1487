"""Verification keeps what the target itself writes, and nothing else."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import pytest
import torch

from actors.sampling import decide as module
from actors.sampling.decide import Span, Verdict, decide
from actors.sampling.params import SamplingParams

torch.set_num_threads(1)
GREEDY = SamplingParams(temperature=0.0)
NO_EOS: frozenset[int] = frozenset()


def make_rows(*argmaxes: int, vocab: int = 16) -> torch.Tensor:
    """One row for each, whose largest logit is there."""
    rows = torch.zeros(len(argmaxes), vocab)
    rows[torch.arange(len(argmaxes)), torch.tensor(argmaxes)] = 3.0
    return rows


def make_span(
    block: Sequence[int] = (),
    start: int = 0,
    params: SamplingParams = GREEDY,
    tokens: Sequence[int] = (1, 2),
    eos: frozenset[int] = NO_EOS,
) -> Span:
    return Span(start, block, params, tokens, 2, eos)


@pytest.mark.parametrize(
    ("block", "accepted", "tokens"),
    [
        ((), 0, (4,)),
        ((4,), 1, (4, 5)),
        ((4, 5, 6), 3, (4, 5, 6, 7)),
        ((4, 9, 6), 1, (4, 5)),
        ((9, 5, 6), 0, (4,)),
    ],
)
def test_the_first_mismatch_is_the_commit(
    block: tuple[int, ...], accepted: int, tokens: tuple[int, ...]
) -> None:
    assert decide(make_rows(4, 5, 6, 7), [make_span(block)]) == [Verdict(accepted, tokens)]


def test_each_row_of_a_ragged_batch_is_its_solo_run() -> None:
    """S42: D = 0, 3, 1, 4 in one batch, greedy and sampled mixed."""
    rows = torch.randn(12, 64, generator=torch.Generator().manual_seed(0)) * 2
    sampled = SamplingParams(seed=3, top_p=0.95)
    starts, depths, params = (0, 1, 5, 7), (0, 3, 1, 4), (GREEDY, sampled, GREEDY, sampled)
    spans = []
    for start, depth, p in zip(starts, depths, params, strict=True):
        block: list[int] = []
        for i in range(depth):  # right for all but the last
            probe = make_span((), start + i, p, (1, 2, *block))
            block.append(decide(rows, [probe])[0].tokens[0])
        spans.append(make_span((*block[:-1], 63 - block[-1]) if block else (), start, p))
    together = decide(rows, spans)
    assert together == [decide(rows, [span])[0] for span in spans]
    assert [v.accepted for v in together] == [0, 2, 0, 3]
    assert together == decide(rows, spans[::-1])[::-1]


@pytest.mark.parametrize("params", [GREEDY, SamplingParams(seed=5)])
def test_ids_outside_the_vocabulary_are_counted_and_never_accepted(params: SamplingParams) -> None:
    """S42: -1 must not read the last row's id."""
    rows = make_rows(15, 15, 15) * 30
    for block in ((-1, 15), (16, 15), (2**40, -7)):
        verdict = decide(rows, [make_span(block, params=params)])[0]
        assert verdict.accepted == 0
        assert verdict.tokens == (15,)
        assert verdict.invalid == sum(t not in range(16) for t in block)


@pytest.mark.parametrize("params", [GREEDY, SamplingParams(seed=5), SamplingParams(top_k=3)])
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_broken_row_fails_its_request_alone(params: SamplingParams, bad: float) -> None:
    """S52: four rows, one with NaN: the other three are as they are alone."""
    rows = torch.randn(4, 300, generator=torch.Generator().manual_seed(1))
    rows[2, 150] = bad
    spans = [make_span((), i, dataclasses.replace(params, seed=i)) for i in range(4)]
    verdicts = decide(rows, spans)
    assert verdicts[2].tokens == ()
    assert "position 2" in (verdicts[2].error or "")
    for i in (0, 1, 3):
        assert verdicts[i] == decide(rows[i : i + 1], [dataclasses.replace(spans[i], start=0)])[0]
        assert verdicts[i].error is None


@pytest.mark.parametrize("params", [GREEDY, SamplingParams(seed=5, temperature=0.01)])
def test_a_broken_row_inside_a_block_ends_the_walk_before_it(params: SamplingParams) -> None:
    """The text up to it is what standard decode would have delivered before failing."""
    rows = make_rows(4, 5, 6, 7)
    rows[2, 0] = math.nan
    verdict = decide(rows, [make_span((4, 5, 6), params=params)])[0]
    assert (verdict.accepted, verdict.tokens, verdict.error) == (1, (4, 5), None)
    again = decide(rows, [make_span((6,), 2, params, (1, 2, 4, 5))])[0]
    assert again.tokens == ()
    assert "NaN" in (again.error or "")


@pytest.mark.parametrize("params", [GREEDY, SamplingParams(seed=5, temperature=0.01)])
def test_a_broken_row_past_the_first_mismatch_is_nobodys_business(params: SamplingParams) -> None:
    rows = make_rows(4, 5, 6)
    rows[2] = math.nan
    verdict = decide(rows, [make_span((4, 9), params=params)])[0]
    assert verdict == Verdict(1, (4, 5))


def test_sampled_rows_past_the_first_mismatch_are_never_drawn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    drawn: list[int] = []
    choose = module.choose
    monkeypatch.setattr(module, "choose", lambda *a: drawn.append(a[-1]) or choose(*a))
    rows = make_rows(4, 5, 6, 7) * 20
    decide(rows, [make_span((4, 9, 6), params=SamplingParams(seed=1), tokens=(1,) * 30)])
    assert drawn == [30, 31]


def test_greedy_rows_share_one_argmax(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    first_max = module.first_max
    monkeypatch.setattr(module, "first_max", lambda r: calls.append(len(r)) or first_max(r))
    decide(make_rows(*range(8)), [make_span((i,), 2 * i) for i in range(4)])
    assert calls == [8]


def test_penalties_and_min_tokens_reach_the_draft_rows() -> None:
    """S17: row i sees history + block[:i]. An oracle's repeats are judged one by one."""
    rows = torch.zeros(4, 8)
    rows[:, 5], rows[:, 6], rows[:, 7] = 3.0, 2.5, 2.2
    params = SamplingParams(temperature=0.0, presence_penalty=1.0)
    verdict = decide(rows, [make_span((5, 6, 7), params=params)])[0]
    assert verdict.tokens == (5, 6, 7, 5)
    params = SamplingParams(temperature=0.0, min_tokens=2)
    verdict = decide(rows, [make_span((6, 6, 5), params=params, eos=frozenset([5]))])[0]
    assert verdict.tokens == (6, 6, 5, 5)


def test_equal_maxima_are_one_rule_in_every_row() -> None:
    """S21: plain, verify and bonus rows, greedy through the batch and through the processors."""
    rows = torch.zeros(3, 9)
    rows[:, 1:3] = 7.0
    for params in (GREEDY, SamplingParams(temperature=0.0, logit_bias=((8, -1.0),))):
        params = dataclasses.replace(params, logprobs=2)
        verdict = decide(rows, [make_span((1, 1), params=params)])[0]
        assert verdict.tokens == (1, 1, 1)
        assert [s.rank for s in verdict.logprobs or ()] == [1, 1, 1]
        assert [t for t, _ in (verdict.logprobs or ())[0].top] == [1, 2]


def test_logprobs_are_the_raw_rows_whatever_the_sampling_did() -> None:
    rows = torch.randn(2, 50, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    token = int(rows[0].argsort()[10])
    params = SamplingParams(logit_bias=((token, 100.0),), temperature=0.3, top_k=1, logprobs=3)
    verdict = decide(rows, [make_span((), params=params)])[0]
    law = rows[0].log_softmax(0)
    assert verdict.tokens == (token,)
    assert verdict.logprobs is not None
    score = verdict.logprobs[0]
    assert score.logprob == pytest.approx(law[token].item(), abs=1e-12)
    assert score.rank == 40
    assert [t for t, _ in score.top] == law.topk(3).indices.tolist()
    assert [p for _, p in score.top] == pytest.approx(law.topk(3).values.tolist(), abs=1e-12)


@pytest.mark.parametrize("count", [None, 0, 1, 20])
def test_logprobs_come_one_a_token_and_only_when_asked(count: int | None) -> None:
    params = dataclasses.replace(GREEDY, logprobs=count)
    verdict = decide(make_rows(4, 5, 6), [make_span((4, 9), params=params)])[0]
    if count is None:
        assert verdict.logprobs is None
        return
    assert verdict.logprobs is not None
    assert [s.token for s in verdict.logprobs] == list(verdict.tokens) == [4, 5]
    assert [len(s.top) for s in verdict.logprobs] == [min(count, 16)] * 2


def test_a_span_without_its_rows_is_refused() -> None:
    with pytest.raises(ValueError, match="rows 2 … 4 of 4"):
        decide(make_rows(1, 2, 3, 4), [make_span((1, 2), 2)])
    with pytest.raises(ValueError, match="rows"):
        decide(make_rows(1), [make_span((), -1)])
    assert decide(make_rows(1), []) == []
