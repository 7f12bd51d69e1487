from __future__ import annotations

import math
from typing import Any

import pytest

from cluster.gateway.errors import InvalidRequest, ModelNotFound
from cluster.gateway.resolve import (
    SamplingFields,
    new_seed,
    resolve_draft_len,
    resolve_model,
    resolve_prompt,
    resolve_request_id,
    resolve_sampling,
    resolve_stop,
)
from tests.unit.cluster.gateway.builders import make_info

INFO = make_info(vocab_size=17, max_model_len=64)


def resolve(prompt_tokens: int = 4, default: int | None = None, **given: Any) -> Any:
    fields = SamplingFields(**given)
    return resolve_sampling(
        fields, INFO, prompt_tokens, default_max_tokens=default, seed=lambda: 11
    )


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("temperature", -1),
        ("temperature", math.nan),
        ("temperature", math.inf),
        ("temperature", 10**400),
        ("top_p", 0),
        ("top_p", 1.01),
        ("top_p", math.nan),
        ("top_k", -2),
        ("min_p", -0.1),
        ("min_p", 1.1),
        ("repetition_penalty", 0),
        ("repetition_penalty", math.inf),
        ("repetition_penalty", 5e-324),  # a logit divided by it is no number
        ("repetition_penalty", 1e-38),
        ("repetition_penalty", 1e300),
        ("presence_penalty", 2.5),
        ("frequency_penalty", -2.5),
        ("seed", -1),
        ("seed", 2**64),
        ("max_tokens", 0),
        ("max_tokens", -1),
        ("max_tokens", 1_000_000),
        ("max_tokens", 10**300),
        ("min_tokens", -1),
        ("min_tokens", 61),
        ("logprobs", -1),
        ("logprobs", 21),
        ("logit_bias", {17: 1.0}),
        ("logit_bias", {-1: 1.0}),
        ("logit_bias", {1: 101.0}),
        ("logit_bias", {1: math.nan}),
        ("logit_bias", dict.fromkeys(range(1025), 0.0)),
        ("stop_token_ids", [17]),
        ("stop_token_ids", list(range(129))),
    ],
)
def test_a_value_out_of_bounds_is_refused_by_its_name(name: str, value: object) -> None:
    with pytest.raises(InvalidRequest) as raised:
        resolve(**{name: value})
    assert raised.value.param == name
    assert name in raised.value.message or name == "max_tokens"
    assert len(raised.value.message) < 400


def test_absent_fields_take_openais_defaults() -> None:
    params = resolve()
    assert (params.temperature, params.top_p, params.top_k, params.min_p) == (1.0, 1.0, 0, 0.0)
    assert (params.seed, params.min_tokens, params.logprobs) == (11, 0, None)


def test_the_default_length_is_clipped_to_the_context_and_a_given_one_refused() -> None:
    assert resolve(4).max_tokens == 60
    assert resolve(4, default=16).max_tokens == 16
    assert resolve(60, default=16).max_tokens == 4
    assert resolve(4, max_tokens=60).max_tokens == 60
    with pytest.raises(InvalidRequest) as raised:
        resolve(4, max_tokens=61, max_tokens_param="max_completion_tokens")
    assert raised.value.param == "max_completion_tokens"
    assert raised.value.code == "context_length_exceeded"


def test_bounds_themselves_pass() -> None:
    params = resolve(
        temperature=0, top_p=1, top_k=-1, min_p=1, seed=2**64 - 1, max_tokens=60, min_tokens=60,
        presence_penalty=-2, frequency_penalty=2, logit_bias={16: -100, 0: 100}, logprobs=20,
    )  # fmt: skip
    assert params.greedy
    assert params.top_k == 0
    assert params.seed == 2**64 - 1
    assert params.logit_bias == ((0, 100.0), (16, -100.0))


def test_a_temperature_too_small_to_divide_by_is_greedy_and_no_other() -> None:
    assert resolve(temperature=1e-310).greedy
    assert not resolve(temperature=1e-5).greedy
    assert not resolve().greedy


def test_a_choice_among_nothing_is_refused_before_the_engine_meets_it() -> None:
    every = list(range(17))
    with pytest.raises(InvalidRequest) as raised:
        resolve(stop_token_ids=every, min_tokens=1)
    assert raised.value.param == "min_tokens"
    assert resolve(stop_token_ids=every).stop_token_ids == frozenset(every)
    assert resolve(stop_token_ids=every[1:], min_tokens=1).min_tokens == 1


def test_fresh_seeds_fill_64_bits() -> None:
    seeds = [new_seed() for _ in range(200)]
    assert len(set(seeds)) == 200
    assert all(0 <= seed < 2**64 for seed in seeds)
    assert max(seeds) > 2**62


@pytest.mark.parametrize("ids", [[], [17], [-1], [0] * 64])
def test_a_prompt_is_not_empty_in_the_vocabulary_and_shorter_than_the_context(
    ids: list[int],
) -> None:
    with pytest.raises(InvalidRequest) as raised:
        resolve_prompt(ids, INFO, "messages")
    assert raised.value.param == "messages"


def test_a_prompt_too_long_names_the_limit_and_its_length() -> None:
    with pytest.raises(InvalidRequest, match=r"64 tokens \(max_model_len\).*100 tokens"):
        resolve_prompt([0] * 100, INFO)
    assert resolve_prompt([0] * 63, INFO) == (0,) * 63


@pytest.mark.parametrize("stop", [["x"] * 17, ["x"] * 10_000, [""], "", ["x" * 257]])
def test_stop_lists_are_bounded(stop: str | list[str]) -> None:
    if stop == "":
        with pytest.raises(InvalidRequest, match="stop"):
            resolve_stop(stop)
        return
    with pytest.raises(InvalidRequest) as raised:
        resolve_stop(stop)
    assert raised.value.param == "stop"


def test_stop_strings_are_distinct_and_in_order() -> None:
    assert resolve_stop(["b", "a", "b"]) == ("b", "a")
    assert resolve_stop("ab") == ("ab",)
    assert resolve_stop(None) == ()


def test_names_are_checked() -> None:
    assert resolve_model(None, INFO, "alias") == "alias"
    assert resolve_model("tiny", INFO, "alias") == "tiny"
    with pytest.raises(ModelNotFound):
        resolve_model("gpt", INFO)
    assert resolve_request_id("a-1") == "a-1"
    assert resolve_request_id(None) != resolve_request_id(None)
    for bad in ("a b", "x" * 129, "é", "a\n"):
        with pytest.raises(InvalidRequest, match="request_id"):
            resolve_request_id(bad)
    assert resolve_draft_len(0) == 0
    with pytest.raises(InvalidRequest) as raised:
        resolve_draft_len(33)
    assert raised.value.param == "speculative.n_max"
