"""The drafters that come with the project, on the target they were made for."""

from __future__ import annotations

import pytest

from actors.contracts import Drafter, DraftPort
from actors.drafters.config import DrafterConfig
from actors.drafters.shipped import catalogue
from actors.drafters.table import build_drafter
from actors.engine.core import Engine, drain
from actors.engine.noport import NoDrafts
from actors.engine.sequence import EngineRequest
from actors.exchange.local import LocalPort
from actors.sampling.params import SamplingParams
from actors.training.answering import AnswerOptions, answering_engine
from cluster.models.paths import cache_root
from cluster.models.resolve import resolve
from cluster.training.command import encoder

pytestmark = [pytest.mark.model, pytest.mark.timeout(900)]

DEPTH, TOKENS = 4, 48
PROMPTS = (
    "A baker makes 24 rolls a day and sells each for 3 dollars. What does he earn in a week?",
    "Write a Python function that returns the largest number of a list.",
    "What is the capital of France, and what is it known for?",
    "Write a short letter to thank a neighbour for help in the garden.",
)
FLOORS: dict[str, float] = {
    "dflash": 1.2,
    "draft_model": 2.2,
    "dspark": 1.3,
    "eagle3": 2.0,
    "mtp": 1.35,
}


@pytest.fixture(scope="module")
def target() -> str:
    return str(resolve("smollm2"))


def drafter(mechanism: str, target: str) -> Drafter:
    """By its method alone, as a user writes it."""
    return build_drafter(
        DrafterConfig(
            mechanism,
            target=target,
            target_tokenizer=target,
            num_speculative_tokens=DEPTH,
            compile_cache=str(cache_root() / "compiled"),
        )
    )


def answers(engine: Engine, target: str, temperature: float) -> tuple[dict[str, list[int]], float]:
    """Tokens by prompt, and tokens a round after the first."""
    encode = encoder(target)
    for i, text in enumerate(PROMPTS):
        params = SamplingParams(temperature=temperature, seed=i, max_tokens=TOKENS)
        engine.add(EngineRequest(str(i), tuple(encode(text)), params))
    texts: dict[str, list[int]] = {}
    tokens = rounds = 0
    for event in drain(engine):
        assert event.error is None
        texts.setdefault(event.request_id, []).extend(event.tokens)
        if event.tokens and not event.first:
            tokens, rounds = tokens + len(event.tokens), rounds + 1
    return texts, tokens / rounds


def engine_for(target: str, port: DraftPort, depth: int) -> Engine:
    options = AnswerOptions(512, TOKENS, 4, compile_cache=str(cache_root() / "compiled"))
    engine = answering_engine(target, port, options)
    engine.plan.snapshot.fallback.depth = depth
    return engine


@pytest.fixture(scope="module")
def plain(target: str) -> dict[float, dict[str, list[int]]]:
    """Standard decode's texts, by temperature."""
    texts, engine = {}, engine_for(target, NoDrafts(), 0)
    for temperature in (0.0, 1.0):
        texts[temperature], one = answers(engine, target, temperature)
        assert one == 1.0
    return texts


@pytest.mark.parametrize("mechanism", sorted(FLOORS))
def test_a_shipped_drafter_is_taken_without_a_name_and_accepted_as_often_as_it_was(
    mechanism: str, target: str, plain: dict[float, dict[str, list[int]]]
) -> None:
    """And the text is the target's own, greedy and sampled."""
    engine = engine_for(target, LocalPort(drafter(mechanism, target)), DEPTH)
    greedy, length = answers(engine, target, 0.0)
    assert greedy == plain[0.0]
    assert length >= FLOORS[mechanism]
    sampled, _ = answers(engine, target, 1.0)
    assert sampled == plain[1.0]


def test_every_shipped_drafter_has_a_floor() -> None:
    assert {mechanism for mechanism, _ in catalogue()} == set(FLOORS)
