"""Targets with recurrent layers speculate, and write what transformers writes (L1, S26, S27).

Exact in fp64, where our recurrence is fp64 as well; transformers' own is in fp32 whatever the
model's dtype, so a first difference between the two would be a near-tie of 1e-6.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import cache
from typing import Any

import pytest
import torch

from actors.contracts import Drafter
from actors.engine.attention import ATTENTION
from actors.engine.core import Engine
from actors.engine.errors import ModelLoadError
from actors.engine.hybrid.memory import NOTED_ROWS
from actors.engine.state import MAX_DRAFT
from actors.sampling.params import SamplingParams
from tests.drafters.anti import AntiDrafter
from tests.drafters.exact_k import ExactKDrafter
from tests.drafters.feature_receiver import FeatureReceiver
from tests.drafters.oracle import OracleDrafter
from tests.hybrids import HYBRIDS, RELATIVES, make_hybrid
from tests.law.harness import (
    SAMPLED,
    assert_pools_full,
    make_engine,
    plain,
    request,
    run,
    seeded,
)

GREEDY = SamplingParams(temperature=0.0, max_tokens=20)
STEM = [(11 * i + 3) % 128 for i in range(8)]


class Case:
    """A tiny random model, prompts of one token to several pieces, and what it writes after."""

    def __init__(self, family: str) -> None:
        rng = random.Random(family)
        self.model = make_hybrid(family)
        lengths = (1, 5, 18, 29, 90)
        self.prompts = [[*STEM, *(rng.randrange(128) for _ in range(n))][-n:] for n in lengths]
        self.sampling = [seeded(SAMPLED, 70 + i) if i % 3 == 1 else GREEDY for i in range(5)]
        self.texts = [
            plain(self.model, p, s) for p, s in zip(self.prompts, self.sampling, strict=True)
        ]

    def next_token(self, prefix: Sequence[int], params: SamplingParams) -> int:
        for prompt, sampling, text in zip(self.prompts, self.sampling, self.texts, strict=True):
            whole = [*prompt, *text]
            if params == sampling and list(prefix) == whole[: len(prefix)] != whole:
                return whole[len(prefix)]
        return 0

    def drafter(self, kind: str, depth: int) -> Drafter:
        if kind == "exact-k":
            return ExactKDrafter(self.next_token, vocab_size=128, k=depth // 2)
        kinds = {"oracle": OracleDrafter, "anti": AntiDrafter}
        return kinds[kind](self.next_token, vocab_size=128)


case_of = cache(Case)


def assert_nothing_held(engine: Engine) -> None:
    """Law L3, on both sides."""
    assert_pools_full(engine)
    assert [link.sessions for link in engine.port.status()] in ([], [0])


def finish(engine: Engine, case: Case, rng: random.Random) -> dict[str, list[int]]:
    """All prompts, arriving step by step, beside others that are aborted in the middle."""
    texts: dict[str, list[int]] = {}
    arrivals = list(range(len(case.prompts)))
    doomed = 0
    while arrivals or engine.has_work:
        for _ in range(min(len(arrivals), rng.randint(0, 2))):
            i = arrivals.pop(0)
            engine.add(request(str(i), case.prompts[i], case.sampling[i]))
            texts[str(i)] = []
            if doomed < 3:
                doomed += 1
                engine.add(request(f"doomed-{doomed}", case.prompts[-1 - i], GREEDY))
        for event in engine.step():
            assert event.error is None, event.error
            if not event.request_id.startswith("doomed"):
                texts[event.request_id].extend(event.tokens)
        for name in [n for n in engine.sequences if n.startswith("doomed")]:
            if rng.random() < 0.2:
                engine.abort(name)
    return texts


PRESSURES = ((512, 200), (23, 40), (7, 33))
"""Rows of a forward, blocks of four tokens: whole, chunked, chunked and preempted."""


KINDS = ("oracle", "exact-k", "anti")
CELLS = [
    (family, depth, kind)
    for depth in range(1, 9)
    for turn, kind in enumerate(KINDS)
    for family in ("lfm2", ("qwen3_next", "qwen3_5")[(depth + turn) % 2])
]


@pytest.mark.parametrize(("family", "depth", "kind"), CELLS)
def test_no_drafter_no_length_and_no_pressure_changes_a_token(
    family: str, depth: int, kind: str
) -> None:
    case = case_of(family)
    max_rows, blocks = PRESSURES[(depth + len(kind)) % 3]
    engine = make_engine(
        case.model,
        case.drafter(kind, depth),
        depth,
        blocks=blocks,
        block_size=4,
        max_model_len=120,
        max_rows=max_rows,
        max_num_seqs=4,
    )
    texts = finish(engine, case, random.Random(depth))
    assert texts == {str(i): text for i, text in enumerate(case.texts)}
    assert engine.stats.drafted > 0
    share = engine.stats.accepted / engine.stats.drafted
    low, high = {"oracle": (0.3, 1.0), "exact-k": (0.0, 0.7), "anti": (0.0, 0.1)}[kind]
    assert low <= share <= high
    assert share > 0 or kind == "anti" or depth == 1
    assert engine.stats.preemptions > 0 or blocks > 33
    assert_nothing_held(engine)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("family", HYBRIDS)
def test_the_engine_writes_what_transformers_generates(family: str, dtype: torch.dtype) -> None:
    """transformers' own loop, with its own cache of recurrent states."""
    model, prompt = make_hybrid(family, dtype), case_of(family).prompts[3]
    model.set_attn_implementation("sdpa")
    whole = model.generate(torch.tensor([prompt]), do_sample=False, max_new_tokens=20)[0].tolist()
    engine = make_engine(model, case_of(family).drafter("anti", 4), 4)
    engine.self_check()
    assert run(engine, request("a", prompt, GREEDY)) == {"a": whole[len(prompt) :]}


@pytest.mark.parametrize("family", RELATIVES)
def test_models_of_the_same_layers_are_served_as_well(family: str) -> None:
    """With experts, or with windows beside the convolutions (S27)."""
    model = make_hybrid(family)
    prompt, short = case_of("lfm2").prompts[3], SamplingParams(temperature=0.0, max_tokens=8)
    own = plain(model, prompt, short)
    whole = [*prompt, *own, 0]
    drafter = ExactKDrafter(lambda prefix, _: whole[min(len(prefix), len(whole) - 1)], 128, k=1)
    engine = make_engine(model, drafter, 3, max_rows=20, max_num_seqs=4)
    engine.self_check()
    assert run(engine, request("a", prompt, short)) == {"a": own}
    assert 0 < engine.stats.accepted < engine.stats.drafted


def scratch_logits(model: Any, tokens: list[int]) -> torch.Tensor:
    """Of the token after `tokens`, by a new engine's first forward, [vocab]."""
    engine = make_engine(model)
    caught: list[torch.Tensor] = []
    forward = engine.target.forward

    def spy(batch: Any, pool: Any) -> torch.Tensor:
        caught.append(forward(batch, pool))
        return caught[-1]

    engine.target.forward = spy  # type: ignore[method-assign]
    run(engine, request("a", tokens, SamplingParams(temperature=0.0, max_tokens=1)))
    return caught[-1][-1]


@pytest.mark.parametrize("family", HYBRIDS)
@pytest.mark.parametrize("k", [0, 3, 4])
def test_rejected_rows_leave_no_trace_in_the_recurrent_state(family: str, k: int) -> None:
    """S26: a drafter that is right k times and then wrong, and the logits of every round."""
    case = case_of(family)
    prompt, own = case.prompts[3], case.texts[3]
    drafter = ExactKDrafter(case.next_token, vocab_size=128, k=k)
    engine = make_engine(case.model, drafter, 4)
    seen: list[tuple[Any, torch.Tensor]] = []
    forward = engine.target.forward

    def spy(batch: Any, pool: Any) -> torch.Tensor:
        seen.append((batch, forward(batch, pool)))
        return seen[-1][1]

    engine.target.forward = spy  # type: ignore[method-assign]
    engine.add(request("a", prompt, GREEDY))
    tokens: list[int] = list(prompt)
    while engine.has_work:
        for event in engine.step():
            tokens.extend(event.tokens)
        batch, logits = seen[-1]
        kept = [p for p in batch.positions[0].tolist() if p <= len(tokens) - 2]
        row = len(kept) - 1 - (batch.ids.shape[1] - logits.shape[0])
        expected = scratch_logits(case.model, tokens[:-1])
        case.model.set_attn_implementation(ATTENTION)
        assert (logits[row] - expected).abs().max() < 1e-9
    assert tokens == [*prompt, *own]
    assert engine.stats.rounds > 2


@pytest.mark.parametrize("family", HYBRIDS)
def test_a_step_that_fails_is_run_again_from_the_state_before_it(family: str) -> None:
    """S52: whoever is not alone fails in the middle of the model, and is run again alone; in
    drafted steps, and in pieces of prompts too long to be noted down."""
    case = case_of(family)
    engine = make_engine(case.model, case.drafter("exact-k", 4), 4, max_rows=64, max_num_seqs=4)
    failed: list[tuple[int, int]] = []  # first row and number of rows

    def sabotage(module: Any, arguments: Any, keywords: dict[str, Any]) -> None:
        spans = keywords["paged_step"].batch.spans
        if len(spans) > 1:
            failed.extend((s.kv_stop - s.stop + s.start, s.stop - s.start) for s in spans)
            raise RuntimeError("sabotage")

    last = case.model.get_decoder().layers[3]
    hook = last.register_forward_pre_hook(sabotage, with_kwargs=True)
    longest_first = reversed(range(len(case.prompts)))
    try:
        texts = run(
            engine,
            *(request(str(i), case.prompts[i], case.sampling[i]) for i in longest_first),
        )
    finally:
        hook.remove()
    assert texts == {str(i): text for i, text in enumerate(case.texts)}
    assert any(first and rows > NOTED_ROWS for first, rows in failed)
    assert any(first and rows == 1 + 4 for first, rows in failed)


@pytest.mark.parametrize("family", HYBRIDS)
def test_a_request_taken_over_goes_on_with_the_same_text(family: str) -> None:
    case = case_of(family)
    prompt, own = case.prompts[2], case.texts[2]
    engine = make_engine(case.model, case.drafter("oracle", 3), 3)
    given = request("a", prompt, GREEDY, output_ids=tuple(own[:7]))
    assert run(engine, given) == {"a": own[7:]}


def test_blocks_longer_than_the_state_can_go_back_are_cut() -> None:
    case = case_of("lfm2")
    engine = make_engine(case.model, case.drafter("oracle", 32), 32)
    assert run(engine, request("a", case.prompts[2], GREEDY)) == {"a": case.texts[2]}
    assert engine.stats.drafted == engine.stats.accepted == MAX_DRAFT + 1  # 1 + 16+1 + 1+1 tokens


@pytest.mark.parametrize("family", HYBRIDS)
def test_prefixes_are_not_shared_where_their_state_would_be_missing(family: str) -> None:
    case = case_of(family)
    engine = make_engine(case.model, block_size=4, prefix=True)
    for turn in "ab":
        assert run(engine, request(turn, case.prompts[3], GREEDY)) == {turn: case.texts[3]}
    assert engine.prefix is None
    assert engine.stats.prefix_hits == 0
    assert_nothing_held(engine)


@pytest.mark.parametrize("family", HYBRIDS)
@pytest.mark.parametrize("max_rows", [23, 512])
def test_features_are_the_hidden_states_of_committed_rows(family: str, max_rows: int) -> None:
    case = case_of(family)
    prompt, own = case.prompts[3], case.texts[3]
    taps = (0, 1, 4)
    drafter = FeatureReceiver(taps, 128, case.next_token)
    engine = make_engine(case.model, drafter, 3, max_rows=max_rows, max_num_seqs=4)
    assert run(engine, request("a", prompt, GREEDY)) == {"a": own}
    assert drafter.faults == []
    (key,) = drafter.log
    rows = drafter.received(key)
    assert rows.shape[0] > len(prompt)
    caught: dict[int, torch.Tensor] = {}
    layers = case.model.get_decoder().layers
    hooks = [
        layers[tap - 1].register_forward_hook(lambda _m, _a, out, t=tap: caught.update({t: out}))
        for tap in taps[1:]
    ]
    case.model.set_attn_implementation("sdpa")
    with torch.inference_mode():
        out = case.model(
            torch.tensor([[*prompt, *own]]), use_cache=False, output_hidden_states=True
        )
    for hook in hooks:
        hook.remove()
    caught[0] = out.hidden_states[0]
    expected = torch.cat([caught[t][0] for t in taps], dim=-1).to(torch.bfloat16)
    torch.testing.assert_close(rows, expected[: rows.shape[0]], atol=1e-4, rtol=2**-7)


@pytest.mark.parametrize("family", HYBRIDS)
def test_a_state_that_is_not_the_models_own_is_refused_before_serving(family: str) -> None:
    model = make_hybrid(family)
    engine = make_engine(model)
    engine.self_check()
    for states in engine.pool.states.values():
        run_right = states.run

        def run_wrong(
            place: int, start: int, rows: Any, compute: Any, right: Any = run_right
        ) -> Any:
            return right(place, start, {n: t.flip(0) for n, t in rows.items()}, compute)

        states.run = run_wrong  # type: ignore[method-assign]
    with pytest.raises(ModelLoadError, match="differs from transformers' own"):
        engine.self_check()
