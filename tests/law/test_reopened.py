"""A session that is opened again in the middle drafts as if it had never been closed: penalties and
min_tokens count the output, and the drafter knows where it starts."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from actors.exchange.local import LocalPort
from actors.sampling.params import SamplingParams
from tests.drafters.failing import FailingDrafter
from tests.law.harness import assert_pools_full, make_engine, plain, request, run
from tests.models import make_rand

PROMPT = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5]
PLAIN = SamplingParams(temperature=1.0, seed=5, max_tokens=30)
MODEL = make_rand()
EOS = plain(MODEL, PROMPT, PLAIN)[4]
"""Written early when nothing forbids it, so that min_tokens decides."""


@pytest.mark.parametrize(
    "sampling",
    [
        replace(PLAIN, frequency_penalty=1.5, presence_penalty=0.7),
        replace(PLAIN, temperature=0.0, frequency_penalty=2.0),
        replace(PLAIN, min_tokens=29),
    ],
    ids=["sampled", "greedy", "min-tokens"],
)
def test_drafts_after_a_second_opening_know_where_the_output_starts(
    sampling: SamplingParams,
) -> None:
    model = make_rand(eos_token_id=EOS if sampling.min_tokens else None)
    own = plain(model, PROMPT, sampling)
    drafter = FailingDrafter("session", at_round=3, model=model)
    opened: list[int] = []
    take = drafter.open

    def watch(sessions):
        opened.extend(session.prompt_len for session in sessions)
        take(sessions)

    drafter.open = watch
    seconds = itertools.count()
    engine = make_engine(model, port=LocalPort(drafter, clock=lambda: float(next(seconds))))
    assert run(engine, request("a", PROMPT, sampling)) == {"a": own}
    assert opened == [len(PROMPT)] * 2
    assert engine.stats.accepted == engine.stats.drafted > 12
    assert_pools_full(engine)
