"""Several mechanisms in one configuration: names, refusals, pools, and what an engine is given."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from cluster.app import build, cpus
from cluster.cli.options import FlagError, app_args
from cluster.config import AppArgs
from cluster.deployments import names
from cluster.deployments.arguments import ArgumentsError, parse_args
from cluster.deployments.engine_options import engine_options, policy_options
from cluster.deployments.pools import drafter_pools
from tests.unit.cluster.test_app import deployments

HERE = {"method": "suffix", "placement": "colocated", "num_speculative_tokens": 8}
THERE = {"method": "eagle3", "model": "a/b", "num_drafters": 2, "num_speculative_tokens": 3}
NGRAM = {"method": "ngram"}


def app(*mechanisms: Any, **args: Any) -> AppArgs:
    return AppArgs.model_validate({"model": "m", "speculative_config": list(mechanisms), **args})


def test_of_a_list_the_first_is_the_default_and_all_reach_the_engine() -> None:
    args = app(HERE, THERE, NGRAM)
    options = engine_options(args, "v")
    assert [(m.drafter.method, m.placement) for m in options.mechanisms] == [
        ("suffix", "colocated"),
        ("eagle3", "remote"),
        ("ngram", "remote"),
    ]
    assert options.speculative == options.mechanisms[0].drafter
    assert options.drafts_here
    assert policy_options(args).depth == args.num_speculative_tokens == 8


def test_a_list_of_one_is_that_one() -> None:
    assert app(THERE) == AppArgs.model_validate({"model": "m", "speculative_config": THERE})
    assert engine_options(app(THERE), "v").beside == ()


def test_what_is_dumped_is_read_again() -> None:
    args = app(HERE, THERE)
    assert AppArgs.model_validate(args.model_dump()) == args


@pytest.mark.parametrize(
    ("mechanisms", "problem"),
    [
        ([HERE, THERE, {**HERE, "num_speculative_tokens": 2}], "suffix@colocated twice"),
        ([THERE, {**THERE, "model": "c/d"}], "eagle3@remote twice"),
        ([], "null is standard decode"),
        ([HERE, None], "null is standard decode"),
        ([HERE, {**NGRAM, "adaptive": False}], "adaptive .*must be the same"),
        (
            [HERE, {**NGRAM, "rejection_sample_method": "block"}],
            "rejection_sample_method .*must be the same",
        ),
        ([{**HERE, "num_drafters": 2}], "num_drafters needs placement 'remote'"),
        ([HERE, {"method": "custom_class"}], r"speculative_config\.1: .*needs 'model'"),
        ([HERE, {"method": "ngrm"}], r"speculative_config\.1\.method: "),
        ([HERE, {"num_spec_tokens": 2}], r"speculative_config\.1\.num_spec_tokens: unknown key"),
        ([HERE, 3], r"speculative_config\.1: "),
    ],
)
def test_what_cannot_be_together_is_refused_by_name(mechanisms: list[Any], problem: str) -> None:
    with pytest.raises(ArgumentsError, match=problem):
        parse_args({"model": "m", "speculative_config": mechanisms})


def test_one_mechanism_here_and_there_are_two_and_so_is_what_has_suffix_beside_it() -> None:
    eagle = {**THERE, "enable_suffix_decoding": True}
    args = app(THERE, {**HERE, "placement": "remote"}, HERE, eagle)
    assert [pool.name for pool in drafter_pools(args)] == [
        "Drafter-eagle3",
        "Drafter-suffix",
        "Drafter-eagle3-suffix",
    ]


def test_others_need_a_first() -> None:
    with pytest.raises(ValidationError, match="beside a speculative_config"):
        AppArgs.model_validate({"speculative_config": None, "other_mechanisms": [NGRAM]})
    with pytest.raises(ValidationError, match="give the list"):
        AppArgs.model_validate({"speculative_config": [HERE], "other_mechanisms": [NGRAM]})


def test_each_mechanism_that_drafts_elsewhere_is_a_deployment_of_its_own() -> None:
    args = app(HERE, THERE, NGRAM, drafter={"num_replicas": 3, "num_cpus": 0.5})
    found = deployments(build(args))
    eagle, ngram = found["Drafter-eagle3"], found["Drafter-ngram"]
    assert names.DRAFTER not in found
    assert (eagle.num_replicas, ngram.num_replicas) == (2, 3)
    for deployment, method in ((eagle, "eagle3"), (ngram, "ngram")):
        own = deployment.init_args[0]
        assert [one.method for one in own.mechanisms] == [method]
    without = app(HERE, drafter={"num_replicas": 3, "num_cpus": 0.5})
    assert cpus(args) == pytest.approx(cpus(without) + 5 * 0.5)
    assert policy_options(args).expected_drafters == 5


def test_one_pool_alone_is_called_drafter() -> None:
    found = deployments(build(app(HERE, THERE)))
    assert found[names.DRAFTER].num_replicas == 2
    assert drafter_pools(app(HERE)) == ()


def test_the_command_line_takes_a_list_and_shortcuts_do_not_change_it() -> None:
    text = '[{"method": "suffix", "placement": "colocated"}, {"method": "ngram"}]'
    args = app_args("m", None, "127.0.0.1", {"speculative_config": text})
    assert [one.mechanism for one in args.mechanisms] == ["suffix", "ngram"]
    with pytest.raises(FlagError, match=r"--spec-tokens: .*several mechanisms"):
        app_args("m", None, "127.0.0.1", {"speculative_config": text, "spec_tokens": 3})
    wrong = '[{"method": "suffix"}, {"method": "ngram", "prompt_lookup_max": 0}]'
    with pytest.raises(FlagError, match=r"--speculative-config: 1\.prompt_lookup_max: "):
        app_args("m", None, "127.0.0.1", {"speculative_config": wrong})
