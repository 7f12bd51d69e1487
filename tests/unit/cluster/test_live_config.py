"""What may be changed while serving: every mistake is named, and nothing of it takes effect."""

from __future__ import annotations

from typing import Any

import pytest

from actors.policy.options import PolicyOptions
from cluster.deployments.arguments import ArgumentsError
from cluster.live_config import as_config, parse_live, patched
from policies.control import Windows
from policies.live import Settings

OPTIONS = PolicyOptions(depth=6, cohorts=("chat", "code", "default"))


def test_an_empty_configuration_is_what_the_server_was_started_with() -> None:
    assert parse_live({}, OPTIONS) == Settings(6)


def test_everything_can_be_set() -> None:
    given = {
        "speculation": False,
        "num_speculative_tokens": 4,
        "control": {"steps": 1, "period": 64},
        "cohorts": {"chat": {"num_speculative_tokens": 2}, "code": {"speculation": False}},
    }
    limits = {"chat": 2, "code": 0}
    assert parse_live(given, OPTIONS) == Settings(4, True, Windows(period=64, steps=1), limits)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"num_speculative_tokens": -1}, "num_speculative_tokens: Input should be greater"),
        ({"num_speculative_tokens": "x"}, "num_speculative_tokens: Input should be a valid int"),
        ({"num_speculative_tokens": 7}, "num_speculative_tokens: 7 is above the 6"),
        ({"num_spec": 2}, "num_spec: unknown key; known keys: cohorts, control, num_specul"),
        ({"control": {"steps": 5, "period": 8}}, "control: .*more than half of a period of 8"),
        ({"control": {"stps": 5}}, r"control\.stps: unknown key .did you mean 'steps'"),
        (
            {"cohorts": {"chat": {"depth": 1}}},
            r"cohorts\.chat\.depth: unknown key; known keys: num",
        ),
        ({"cohorts": {"caht": {}}}, r"cohorts\.caht: no rule .*known cohorts: chat, code, default"),
        (
            {"cohorts": {"chat": {"num_speculative_tokens": 9}}},
            r"cohorts\.chat\.num_.* above the 6",
        ),
        ({"speculation": "perhaps"}, "speculation: Input should be a valid bool"),
    ],
)
def test_each_mistake_is_named(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentsError, match=message):
        parse_live(given, OPTIONS)


def test_a_change_leaves_alone_what_it_does_not_name() -> None:
    now = Settings(4, windows=Windows(period=64, steps=1), limits={"chat": 2})
    assert patched(now, {"speculation": False}, OPTIONS) == Settings(
        4, True, now.windows, now.limits
    )
    deeper = patched(now, {"cohorts": {"code": {"num_speculative_tokens": 3}}}, OPTIONS)
    assert deeper.limits == {"chat": 2, "code": 3}
    assert patched(now, {"control": {"steps": 2}}, OPTIONS).windows == Windows(period=64, steps=2)
    with pytest.raises(ArgumentsError, match="num_speculative_tokens"):
        patched(now, {"num_speculative_tokens": 12}, OPTIONS)


def test_none_goes_back_to_the_default() -> None:
    now = Settings(4, limits={"chat": 2, "code": 1})
    assert patched(now, {"num_speculative_tokens": None}, OPTIONS).depth == 6
    assert patched(now, {"cohorts": {"chat": None}}, OPTIONS).limits == {"code": 1}


def test_a_configuration_that_is_read_can_be_given_back() -> None:
    now = Settings(4, True, Windows(period=64, steps=1), {"chat": 2, "code": 0})
    assert parse_live(as_config(now), OPTIONS) == now
