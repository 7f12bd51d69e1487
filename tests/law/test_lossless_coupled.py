"""L1, coupled: a seed fixes the text, with no drafter, any drafter, any D schedule, any batch
mates, and with a drafter or verifier lost half-way (fp64; S23)."""

from __future__ import annotations

import functools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from actors.contracts import Commit, Drafter, DraftRequest, Proposal
from actors.exchange.local import LocalPort
from actors.sampling.params import SamplingParams
from tests.drafters.anti import AntiDrafter
from tests.drafters.base import NextToken
from tests.drafters.exact_k import ExactKDrafter
from tests.drafters.oracle import OracleDrafter
from tests.law.harness import SAMPLED, SchedulePort, make_engine, plain, request, run, seeded
from tests.models import make_rand

MODEL = make_rand()
PROMPTS = [[3, 1, 4, 1, 5], [9, 2, 6, 5], [5, 3, 5, 8, 9, 7]]
VARIANTS = {
    "plain": SAMPLED,
    "cut": SamplingParams(temperature=0.8, top_k=20, top_p=0.9, min_p=0.01, seed=42, max_tokens=24),
    "penalised": SamplingParams(
        temperature=1.2,
        repetition_penalty=1.3,
        presence_penalty=0.4,
        frequency_penalty=0.2,
        logit_bias=((5, 2.0), (7, -50.0)),
        seed=42,
        max_tokens=24,
    ),
}


@functools.cache
def own_text(prompt: tuple[int, ...], params: SamplingParams) -> list[int]:
    return plain(MODEL, prompt, params)


def make_next_token(params: SamplingParams) -> NextToken:
    texts = [[*p, *own_text(tuple(p), params)] for p in PROMPTS]

    def next_token(prefix, _params) -> int:
        for whole in texts:
            if list(prefix) == whole[: len(prefix)] and len(prefix) < len(whole):
                return whole[len(prefix)]
        return 0

    return next_token


def make_drafter(kind: str, params: SamplingParams) -> Drafter | None:
    next_token = make_next_token(params)
    return {
        "none": lambda: None,
        "oracle": lambda: OracleDrafter(next_token, vocab_size=128),
        "exact-2": lambda: ExactKDrafter(next_token, vocab_size=128, k=2),
        "anti": lambda: AntiDrafter(next_token, vocab_size=128),
    }[kind]()


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("kind", ["none", "oracle", "exact-2", "anti"])
def test_a_seed_gives_the_same_text_with_any_drafter(kind: str, variant: str) -> None:
    params = VARIANTS[variant]
    engine = make_engine(MODEL, make_drafter(kind, params), 4)
    texts = run(engine, *(request(str(i), p, params) for i, p in enumerate(PROMPTS)))
    assert texts == {str(i): own_text(tuple(p), params) for i, p in enumerate(PROMPTS)}
    if kind == "oracle":
        assert engine.stats.accepted == engine.stats.drafted > 0


@settings(max_examples=20, deadline=None)
@given(st.lists(st.integers(0, 8), min_size=1, max_size=9))
def test_a_seed_gives_the_same_text_under_any_depth_schedule(schedule: list[int]) -> None:
    drafter = make_drafter("exact-2", SAMPLED)
    assert drafter is not None
    engine = make_engine(MODEL, port=SchedulePort(LocalPort(drafter), schedule), depth=8)
    text = run(engine, request("a", PROMPTS[0], SAMPLED))["a"]
    assert text == own_text(tuple(PROMPTS[0]), SAMPLED)


def test_a_seed_gives_the_same_text_beside_any_batch_mates() -> None:
    solo = own_text(tuple(PROMPTS[0]), SAMPLED)
    engine = make_engine(MODEL, make_drafter("exact-2", SAMPLED), 4)
    mates = [request(f"m{i}", PROMPTS[i], seeded(SAMPLED, 7 + i)) for i in range(3)]
    for _ in range(2):
        texts = run(engine, request("a", PROMPTS[0], SAMPLED), *mates)
        assert texts["a"] == solo
    assert texts["m0"] != solo


def test_different_seeds_give_different_texts() -> None:
    texts = {tuple(own_text(tuple(PROMPTS[0]), seeded(SAMPLED, s))) for s in range(8)}
    assert len(texts) > 4


class Dying:
    """Passes on to a drafter and raises from its n-th proposal on: a drafter lost half-way."""

    def __init__(self, inner: Drafter, after: int) -> None:
        self._inner, self._left = inner, after
        self.info = inner.info
        self.open, self.close = inner.open, inner.close

    def observe(self, commits: list[Commit]) -> None:
        self._inner.observe(commits)

    def propose(self, requests: list[DraftRequest]) -> list[Proposal]:
        self._left -= 1
        if self._left < 0:
            raise ConnectionError("the drafter is gone")
        return self._inner.propose(requests)


@pytest.mark.parametrize("after", range(4))
def test_a_drafter_lost_half_way_changes_nothing(after: int) -> None:
    inner = make_drafter("exact-2", SAMPLED)
    assert inner is not None
    engine = make_engine(MODEL, Dying(inner, after), 4)
    assert run(engine, request("a", PROMPTS[1], SAMPLED))["a"] == own_text(
        tuple(PROMPTS[1]), SAMPLED
    )


@pytest.mark.parametrize("steps", range(1, 8))
def test_a_verifier_lost_half_way_changes_nothing(steps: int) -> None:
    first = make_engine(MODEL, make_drafter("exact-2", SAMPLED), 4)
    first.add(request("a", PROMPTS[2], SAMPLED))
    written: list[int] = []
    for _ in range(steps):
        if first.has_work:
            written.extend(t for event in first.step() for t in event.tokens)
    second = make_engine(MODEL, make_drafter("none", SAMPLED))
    rest = run(second, request("a", PROMPTS[2], SAMPLED, output_ids=tuple(written)))["a"]
    assert written + rest == own_text(tuple(PROMPTS[2]), SAMPLED)


def test_unset_temperature_samples_and_zero_is_greedy_in_the_same_batch() -> None:
    """S19 at the engine's level: an explicit greedy mask, not a tiny temperature."""
    greedy = SamplingParams(temperature=0.0, max_tokens=24)
    engine = make_engine(MODEL, make_drafter("exact-2", SAMPLED), 4)
    texts = run(
        engine,
        request("g", PROMPTS[0], greedy),
        request("s", PROMPTS[0], SamplingParams(max_tokens=24)),
    )
    assert texts["g"] == own_text(tuple(PROMPTS[0]), greedy)
    assert texts["s"] == own_text(tuple(PROMPTS[0]), SamplingParams(max_tokens=24))
    assert texts["g"] != texts["s"]
