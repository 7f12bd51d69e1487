"""The check of ranks sees a text, a log-probability or a choice that is not one process's."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from actors.sampling.noise import noise_key
from actors.sampling.params import SamplingParams
from actors.sampling.race import score
from pilotfish import TokenScore
from tests.law.harness import plain
from tests.models import make_rand
from tests.unit.infra.scripts import INFRA, importable, module

FOLDER = INFRA / "checks"
BOUND = 1e-6
GREEDY = SamplingParams(temperature=0.0, max_tokens=6, ignore_eos=True)
SAMPLED = replace(GREEDY, temperature=0.7, seed=11)
PROMPT = (5, 3, 8, 1)


@pytest.fixture(scope="module", autouse=True)
def on_the_path() -> Iterator[None]:
    with importable(FOLDER):
        yield


@pytest.fixture(scope="module")
def model() -> Any:
    return make_rand()


def written(model: Any, sampling: SamplingParams) -> tuple[Any, Any, Any]:
    """A request, one process's text, and a client's text that is the same."""
    one = module("one_process")
    asked = one.Asked("a", PROMPT, sampling)
    own = one.own_text(model, asked)
    scores = [TokenScore(t, "", own.logprob(i, t)) for i, t in enumerate(own.tokens)]
    return asked, own, module("account").Text(list(own.tokens), scores)


@pytest.mark.parametrize("sampling", [GREEDY, SAMPLED])
def test_one_process_writes_what_full_forwards_write(model: Any, sampling: SamplingParams) -> None:
    _, own, _ = written(model, sampling)
    assert list(own.tokens) == plain(model, PROMPT, sampling)


@pytest.mark.parametrize("sampling", [GREEDY, SAMPLED])
def test_a_margin_is_the_distance_of_the_two_best_exact_scores(
    model: Any, sampling: SamplingParams
) -> None:
    _, own, _ = written(model, sampling)
    for place, (row, margin) in enumerate(zip(own.rows, own.margins, strict=True)):
        values, top = row.tolist(), float(row.max())
        key = noise_key(sampling.seed, len(PROMPT) + place)
        if not sampling.greedy:
            values = [score(x, top, sampling.temperature, key, t) for t, x in enumerate(values)]
        best = sorted(values)[-2:]
        assert margin == pytest.approx(best[1] - best[0], abs=1e-12)
        assert values.index(best[1]) == own.tokens[place]


def test_the_same_text_has_no_fault(model: Any) -> None:
    asked, own, text = written(model, SAMPLED)
    found = module("account").compare([asked], [own], [text], BOUND)
    assert (found.same, found.differing, found.faults) == (1, (), ())
    assert found.off == 0.0


def test_another_token_is_a_fault_unless_the_choice_was_a_near_tie(model: Any) -> None:
    asked, own, text = written(model, GREEDY)
    text.ids[3] += 1
    account = module("account")
    found = account.compare([asked], [own], [text], BOUND)
    assert found.same == 0
    assert found.faults == found.differing != ()
    near = replace(own, margins=(*own.margins[:3], BOUND, *own.margins[4:]))
    found = account.compare([asked], [near], [text], BOUND)
    assert (found.same, len(found.differing), found.faults) == (0, 1, ())


def test_a_text_that_is_cut_short_is_a_fault(model: Any) -> None:
    asked, own, text = written(model, GREEDY)
    del text.ids[-1], text.scores[-1]
    assert module("account").compare([asked], [own], [text], BOUND).faults != ()


def test_a_log_probability_beyond_the_bound_is_a_fault(model: Any) -> None:
    asked, own, text = written(model, GREEDY)
    account = module("account")
    text.scores[2] = replace(text.scores[2], logprob=text.scores[2].logprob + BOUND / 2)
    assert account.compare([asked], [own], [text], BOUND).faults == ()
    text.scores[2] = replace(text.scores[2], logprob=text.scores[2].logprob + BOUND)
    found = account.compare([asked], [own], [text], BOUND)
    assert found.off == pytest.approx(1.5 * BOUND)
    assert len(found.faults) == 1
