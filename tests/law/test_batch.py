"""One row's fate is its own (S42, S44, S51, S52) and nothing leaks (L3)."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping

import pytest
import torch

from actors.contracts import Gathered
from actors.exchange.local import LocalPort
from actors.sampling.params import SamplingParams
from tests.drafters.exact_k import ExactKDrafter
from tests.drafters.failing import FailingDrafter
from tests.drafters.scripted import ScriptedDrafter
from tests.law.harness import (
    GREEDY,
    SAMPLED,
    assert_pools_full,
    events_of,
    make_engine,
    plain,
    request,
    run,
    seeded,
)
from tests.models import make_rand

MODEL = make_rand()
PROMPTS = [[3, 1, 4, 1, 5], [9, 2, 6], [5, 3, 5, 8], [2, 7, 1, 8, 2]]
PLAIN = [plain(MODEL, p) for p in PROMPTS]


def next_token(prefix, params) -> int:
    for prompt, own in zip(PROMPTS, PLAIN, strict=True):
        whole = [*prompt, *own]
        if list(prefix) == whole[: len(prefix)] and len(prefix) < len(whole):
            return whole[len(prefix)]
    return 0


def make_exact(k: int = 3) -> ExactKDrafter:
    return ExactKDrafter(next_token, vocab_size=128, k=k)


def test_depths_0_3_1_4_share_one_forward_and_each_row_is_its_solo_run() -> None:
    engine = make_engine(MODEL, make_exact(), 4)
    sampling = [GREEDY, seeded(SAMPLED, 5), GREEDY, seeded(SAMPLED, 6)]
    depths = [0, 3, 1, 4]
    requests = [request(str(i), PROMPTS[i], sampling[i], max_draft_len=depths[i]) for i in range(4)]
    row_counts: list[list[int]] = []
    forward = engine.target.forward

    def spy(batch, pool):
        row_counts.append([s.stop - s.start for s in batch.spans])
        return forward(batch, pool)

    engine.target.forward = spy
    texts = run(engine, *requests)
    assert [1, 4, 2, 5] in row_counts
    assert texts == {str(i): plain(MODEL, PROMPTS[i], sampling[i]) for i in range(4)}
    assert_pools_full(engine)


@pytest.mark.parametrize("times", [1, 0])
@pytest.mark.parametrize(
    "fault", ["raise", "session", "nan", "range", "length", "base", "missing", "foreign"]
)
def test_a_faulty_drafter_costs_time_only(fault: str, times: int) -> None:
    """S51: raises, NaN confidence, ids V + 5 or -3, wrong length, …, once and for ever."""
    drafter = FailingDrafter(fault, 2, 128, times=times, next_token=next_token)
    engine = make_engine(MODEL, drafter, 4)
    texts = run(engine, *(request(str(i), p) for i, p in enumerate(PROMPTS)))
    assert texts == {str(i): own for i, own in enumerate(PLAIN)}
    assert drafter.failures > 0
    assert_pools_full(engine)


def test_non_finite_logits_fail_their_own_request_only() -> None:
    """S52: NaN never becomes a token id."""
    engine = make_engine(MODEL, make_exact(), 4)
    forward = engine.target.forward
    steps = 0

    def poison(batch, pool):
        nonlocal steps
        steps += 1
        logits = forward(batch, pool)
        one = engine.sequences.get("1")
        for span in batch.spans if steps >= 3 else ():
            if one is not None and span.table is one.table:
                rows = torch.isin(batch.keep, torch.arange(span.start, span.stop))
                logits = logits.clone()
                logits[rows] = math.nan
        return logits

    engine.target.forward = poison
    for i, p in enumerate(PROMPTS):
        engine.add(request(str(i), p))
    texts: dict[str, list[int]] = {str(i): [] for i in range(4)}
    errors = {}
    while engine.has_work:
        for event in engine.step():
            texts[event.request_id].extend(event.tokens)
            if event.error:
                errors[event.request_id] = event.finish
    assert errors == {"1": "error"}
    for i in (0, 2, 3):
        assert texts[str(i)] == PLAIN[i]
    assert texts["1"] == PLAIN[1][: len(texts["1"])]
    assert_pools_full(engine)


def test_a_forward_that_fails_for_one_request_spares_the_others() -> None:
    engine = make_engine(MODEL, make_exact(), 4)
    forward = engine.target.forward

    def explode(batch, pool):
        if 9 in batch.ids[0, :3].tolist() and batch.positions[0, 0] == 0:
            raise RuntimeError("out of memory")
        return forward(batch, pool)

    engine.target.forward = explode
    for i, p in enumerate([PROMPTS[1], PROMPTS[0], PROMPTS[2]]):
        engine.add(request(str(i), p))
    finishes = {}
    while engine.has_work:
        for event in engine.step():
            if event.finish:
                finishes[event.request_id] = event.finish
    assert finishes == {"0": "error", "1": "length", "2": "length"}
    assert_pools_full(engine)


@pytest.mark.parametrize("moment", ["after-propose", "during-verify", "before-commit"])
def test_an_abort_at_any_moment_leaves_nothing_and_disturbs_nobody(moment: str) -> None:
    """S44. The slot's next owner equals its solo run; no event follows the abort."""
    port = LocalPort(make_exact())
    engine = make_engine(MODEL, port=port, depth=4, max_num_seqs=2)
    forward, gather = engine.target.forward, port.gather
    round_now = 0

    def aborting_gather(wanted: dict[str, int], worth_s: Mapping[str, float]) -> Gathered:
        gathered = gather(wanted, worth_s)
        if moment == "after-propose" and round_now == 3:
            engine.abort("0")
        return gathered

    def aborting_forward(batch, pool):
        if moment == "during-verify" and round_now == 3:
            engine.abort("0")
        logits = forward(batch, pool)
        if moment == "before-commit" and round_now == 3:
            engine.abort("0")
        return logits

    port.gather = aborting_gather  # type: ignore[method-assign]
    engine.target.forward = aborting_forward
    engine.add(request("0", PROMPTS[0]))
    engine.add(request("1", PROMPTS[1]))
    texts: dict[str, list[int]] = {"0": [], "1": [], "2": []}
    while engine.has_work:
        round_now += 1
        for event in engine.step():
            assert not (event.request_id == "0" and round_now >= 3)
            assert event.accepted >= 0
            texts[event.request_id].extend(event.tokens)
        if round_now == 3:
            engine.add(request("2", PROMPTS[2]))
    assert (texts["1"], texts["2"]) == (PLAIN[1], PLAIN[2])
    assert_pools_full(engine)


def test_a_thousand_random_aborts_leave_every_pool_full_and_every_table_empty() -> None:
    """L3, engine and co-located drafter; the remote side has its own in the exchange's tests."""
    rng = random.Random(0)
    drafter = make_exact()
    engine = make_engine(MODEL, drafter, 4, blocks=24, max_model_len=64, max_num_seqs=4)
    params = SamplingParams(temperature=0.0, max_tokens=12)
    aborted = added = 0
    while aborted < 1000:
        while len(engine.sequences) < 8:
            name = f"r{added}"
            engine.add(
                request(name, [rng.randrange(128) for _ in range(rng.randint(1, 9))], params)
            )
            added += 1
        for _ in range(rng.randint(0, 2)):
            engine.step()
        for name in rng.sample(sorted(engine.sequences), min(5, len(engine.sequences))):
            aborted += engine.abort(name)
            assert not engine.abort(name)
    for name in list(engine.sequences):
        engine.abort(name)
    assert_pools_full(engine)
    assert not drafter.sessions
    assert [link.sessions for link in engine.port.status()] == [0]


@pytest.mark.parametrize("poison", [math.nan, math.inf])
def test_a_drafted_token_without_a_finite_row_costs_time_only(poison: float) -> None:
    """L2: an untrained id of the vocabulary's padding, proposed by the drafter."""
    model = make_rand()
    own = plain(model, PROMPTS[0])
    bad = next(t for t in range(128) if t not in own and t not in PROMPTS[0])
    with torch.no_grad():
        model.model.embed_tokens.weight[bad] = poison
    drafter = ScriptedDrafter([[bad]], vocab_size=128, repeat=True)
    engine = make_engine(model, drafter, 4)
    events = events_of(engine, request("a", PROMPTS[0]))
    assert [t for e in events for t in e.tokens] == own
    assert "fault" in {e.reason for e in events}
    assert_pools_full(engine)


def test_drafts_do_not_starve_a_prompt() -> None:
    """A quarter of the rows is kept for prompts: the first token comes in bounded steps."""
    drafter = make_exact(k=7)
    engine = make_engine(MODEL, drafter, 7, max_rows=8, max_num_seqs=2, blocks=64)
    engine.add(request("old", PROMPTS[0], SamplingParams(temperature=0.0, max_tokens=200)))
    for _ in range(3):
        engine.step()
    engine.add(request("new", [(3 * i) % 128 for i in range(32)], SamplingParams(temperature=0.0)))
    bound = 32 // (8 // 4) + 2
    assert any(e.request_id == "new" for _ in range(bound) for e in engine.step())
    engine.shutdown()
    assert_pools_full(engine)
