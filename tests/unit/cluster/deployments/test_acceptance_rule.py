"""The acceptance rule from the command line to engine, drafter and the wire."""

from __future__ import annotations

import json

import pytest

from actors.engine.ports import port_options
from actors.exchange.compat import PROTOCOL, Compat, difference, rule_name
from cluster.cli.options import FlagError, app_args
from cluster.config import AppArgs
from cluster.deployments.engine_options import drafter_config, engine_options


def parse(**speculative: object) -> AppArgs:
    return app_args("m", None, "127.0.0.1", {"speculative_config": json.dumps(speculative)})


@pytest.mark.parametrize(
    ("named", "rule"),
    [
        (None, "coupled"),
        ("coupled", "coupled"),
        ("rejection", "rejection"),
        ("standard", "rejection"),  # vLLM's name
        ("block", "block"),
    ],
)
def test_engine_and_drafter_follow_the_rule_that_was_named(named: str | None, rule: str) -> None:
    args = parse(**({} if named is None else {"rejection_sample_method": named}))
    config = drafter_config(args)
    assert config is not None
    assert config.rejection_sample_method == engine_options(args, "v").rule == rule


@pytest.mark.parametrize("lossy", ["synthetic", "fly", "typical"])
def test_a_lossy_rule_is_refused_by_name(lossy: str) -> None:
    with pytest.raises(FlagError) as caught:
        parse(rejection_sample_method=lossy)
    assert str(caught.value).startswith("--speculative-config: rejection_sample_method: ")
    assert f"'{lossy}' changes what the target writes" in str(caught.value)


@pytest.mark.parametrize("odd", ["blocks", "", 3, ["block"], None, True])
def test_an_unknown_rule_is_refused_and_the_known_ones_are_named(odd: object) -> None:
    with pytest.raises(FlagError) as caught:
        parse(rejection_sample_method=odd)
    assert "'coupled', 'rejection' or 'block'" in str(caught.value)


def test_without_speculation_the_rule_is_the_default() -> None:
    assert engine_options(AppArgs(speculative_config=None), "v").rule == "coupled"


def test_a_drafter_of_another_rule_is_refused_by_the_rules_name() -> None:
    ours, theirs = Compat(rule=rule_name("block")), Compat(rule=rule_name("rejection"))
    found = difference(PROTOCOL, theirs, ours, needs_features=False)
    assert found is not None
    assert found[0] == "rule"
    assert "greedy+block" in found[1]
    assert Compat().rule == "greedy+coupled"


@pytest.mark.parametrize("rule", ["rejection", "block"])
def test_where_laws_are_weighed_waits_are_fixed_and_tails_unused(rule: str) -> None:
    """S16: neither may depend on what was drafted."""
    options = port_options(rule)  # type: ignore[arg-type]
    assert options.patience.fixed_wait_s is not None
    assert not options.tails
    assert port_options("coupled").patience.fixed_wait_s is None
    assert port_options("coupled").tails
