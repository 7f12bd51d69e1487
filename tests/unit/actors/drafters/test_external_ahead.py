"""A draft model goes on from the block it has proposed, without feeding it again."""

from __future__ import annotations

import random

import pytest

from actors.contracts import DraftRequest
from actors.drafters.config import DrafterConfig
from actors.drafters.external import ExternalDrafter
from actors.sampling.params import SamplingParams
from tests.models import make_rand
from tests.unit.actors.drafters.builders import GREEDY, make_commit, make_key, make_open
from tests.unit.actors.drafters.test_external import make_external

SAMPLED = SamplingParams(temperature=1.0, seed=5, max_tokens=64)


def chain(drafter: ExternalDrafter, depth: int) -> tuple[int, ...]:
    return drafter.propose([DraftRequest(make_key(), depth)])[0].tokens


@pytest.mark.parametrize("sampling", [GREEDY, SAMPLED])
def test_the_longer_chain_is_that_of_a_fresh_drafter_whatever_is_committed_after(
    sampling: SamplingParams,
) -> None:
    rng = random.Random(1)
    model = make_rand()
    ahead = make_external(model, num_speculative_tokens=3, run_ahead=True)
    tokens = [rng.randrange(128) for _ in range(7)]
    ahead.open([make_open(tokens, sampling=sampling)])
    for _ in range(8):
        plain = make_external(model, num_speculative_tokens=7)
        plain.open([make_open(tokens, sampling=sampling)])
        whole = chain(plain, 7)
        assert chain(ahead, 3) == whole[:3]
        assert chain(ahead, 7) == whole
        right = rng.randrange(len(whole) + 1)
        news = [*whole[:right], rng.randrange(128)]
        ahead.observe([make_commit(len(tokens), *news)])
        tokens += news


def test_going_on_costs_one_row_for_each_further_token() -> None:
    drafter = make_external(make_rand(), num_speculative_tokens=3, run_ahead=True)
    drafter.open([make_open([1, 2, 3, 4, 5])])
    chain(drafter, 3)
    rows: list[int] = []
    forward = drafter._forward

    def counted(feeds):
        rows.append(sum(len(tokens) for _, tokens, _ in feeds))
        return forward(feeds)

    drafter._forward = counted  # type: ignore[method-assign]
    assert len(chain(drafter, 7)) == 7
    assert rows == [1, 1, 1, 1]


def test_a_drafter_without_run_ahead_keeps_to_its_block() -> None:
    assert DrafterConfig("draft_model", num_speculative_tokens=3).max_ahead == 0
    drafter = make_external(make_rand(), num_speculative_tokens=3)
    drafter.open([make_open([1, 2, 3])])
    assert len(chain(drafter, 7)) == 3
