"""The mechanisms inside a real engine: same text as standard decode, and as good as they claim."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
import torch

from actors.contracts import Drafter
from actors.drafters.config import DrafterConfig
from actors.drafters.external import ExternalDrafter
from actors.sampling.params import SamplingParams
from tests.law.harness import assert_pools_full, make_engine, plain, request, run
from tests.models import make_rand
from tests.unit.actors.drafters.builders import make_drafter

torch.set_num_threads(1)

PROMPTS = {"a": [3, 9, 27, 81, 11], "b": [5, 6, 5, 6, 5], "c": list(range(30))}


def make(name: str, model: Any) -> Drafter:
    if name in ("ngram", "suffix"):
        return make_drafter(name, prompt_lookup_min=1, suffix_decoding_max_cached_requests=4)
    weights = model if name == "own-weights" else make_rand(seed=9)
    return ExternalDrafter(copy.deepcopy(weights), DrafterConfig("draft_model"))


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("name", ["ngram", "suffix", "own-weights", "other-weights"])
def test_the_text_is_that_of_standard_decode_and_nothing_is_left(
    name: str, temperature: float
) -> None:
    model = make_rand()
    sampling = SamplingParams(temperature=temperature, seed=5, max_tokens=24)
    want = {n: plain(copy.deepcopy(model), p, sampling) for n, p in PROMPTS.items()}
    drafter: Any = make(name, model)
    engine = make_engine(model, drafter, depth=4)
    for _ in range(2):  # the second time a shared tree knows the answers
        assert run(engine, *(request(n, p, sampling) for n, p in PROMPTS.items())) == want
        assert_pools_full(engine)
        assert len(drafter.sessions) == 0


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_draft_model_with_the_targets_weights_is_never_wrong_in_the_engine(
    temperature: float,
) -> None:
    """S28 end to end: 60 tokens at D = 4 are the first token and ceil(59 / 5) rounds."""
    model = make_rand()
    engine = make_engine(model, make("own-weights", model), depth=4)
    sampling = SamplingParams(temperature=temperature, seed=5, max_tokens=60)
    run(engine, request("a", PROMPTS["a"], sampling))
    assert engine.stats.accepted == engine.stats.drafted > 0
    assert engine.stats.rounds == math.ceil(59 / 5)
