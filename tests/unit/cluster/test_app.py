from typing import Any

import pytest
from ray.serve import Application

from cluster.app import build, cpus, gpus
from cluster.config import AppArgs
from cluster.deployments import names
from cluster.deployments.arguments import ArgumentsError
from cluster.deployments.engine_options import drafter_config, engine_options, policy_options


def deployments(app: Application) -> dict[str, Any]:
    """Every deployment of the application's graph by name."""
    found: dict[str, Any] = {}
    pending = [app]
    while pending:
        bound = pending.pop()._bound_deployment
        found[bound.name] = bound
        pending += [arg for arg in bound.init_args if isinstance(arg, Application)]
    return found


def test_the_application_is_gateway_verifier_drafter_and_policy() -> None:
    app = build({"model": "m"})
    assert app._bound_deployment.name == names.GATEWAY
    assert set(deployments(app)) == {names.GATEWAY, names.VERIFIER, names.DRAFTER, names.POLICY}


@pytest.mark.parametrize(
    "args",
    [
        {"speculative_config": None},
        {"drafter": {"num_replicas": 0}},
        {"speculative_config": {"placement": "colocated"}},
    ],
)
def test_nobody_is_deployed_to_draft_where_nobody_is_needed(args: dict[str, Any]) -> None:
    assert names.DRAFTER not in deployments(build({"model": "m"} | args))


def test_an_unknown_key_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ArgumentsError, match=r"modle: unknown key .*known keys: .*max_model_len"):
        build({"modle": "m"})


def test_a_verifier_has_two_bundles_and_a_drafter_one_of_its_own() -> None:
    found = deployments(
        build(
            {
                "model": "m",
                "verifier": {"num_cpus": 3, "num_gpus": 2},
                "drafter": {"num_cpus": 1, "num_gpus": 0.5},
            }
        )
    )
    supervisor, engine = found[names.VERIFIER]._replica_config.placement_group_bundles
    assert set(supervisor) == {"CPU"}
    assert engine == {"CPU": 3, "GPU": 2}
    assert found[names.DRAFTER]._replica_config.placement_group_bundles == [{"CPU": 1, "GPU": 0.5}]


def test_replicas_and_resources_are_what_was_asked_for() -> None:
    args = AppArgs.model_validate(
        {
            "model": "m",
            "verifier": {"num_replicas": 2, "num_cpus": 1, "num_gpus": 1},
            "drafter": {"num_replicas": 3, "num_cpus": 0.5, "num_gpus": 0.25},
            "gateway": {"num_replicas": 2, "num_cpus": 0.25},
        }
    )
    found = deployments(build(args))
    assert [found[n].num_replicas for n in (names.VERIFIER, names.DRAFTER, names.GATEWAY)] == [
        2,
        3,
        2,
    ]
    assert cpus(args) == pytest.approx(2 * 1.1 + 3 * 0.5 + 2 * 0.25 + 0.1)
    assert gpus(args) == pytest.approx(2 * 1 + 3 * 0.25)


def test_every_rank_of_a_verifier_is_given_what_one_would_be() -> None:
    args = AppArgs.model_validate(
        {
            "model": "m",
            "tensor_parallel_size": 3,
            "verifier": {"num_replicas": 2, "num_cpus": 2, "num_gpus": 1},
            "speculative_config": None,
            "gateway": {"num_cpus": 0.5},
        }
    )
    verifier = deployments(build(args))[names.VERIFIER]
    supervisor, *ranks = verifier._replica_config.placement_group_bundles
    assert "GPU" not in supervisor
    assert ranks == [{"CPU": 2, "GPU": 1}] * 3
    assert cpus(args) == pytest.approx(2 * (3 * 2 + 0.1) + args.gateway.num_cpus + 0.1)
    assert gpus(args) == 2 * 3
    assert engine_options(args, "v").tensor_parallel_size == 3


def test_a_bare_serve_run_fits_on_two_cores() -> None:
    assert cpus(AppArgs()) <= 2.0


def test_serve_never_refuses_what_the_engine_would_take() -> None:
    args = AppArgs(model="m", max_num_seqs=4, max_num_queued_reqs=8)
    assert deployments(build(args))[names.VERIFIER].max_ongoing_requests > 12


def test_a_lost_replica_is_noticed_within_a_second() -> None:
    for deployment in deployments(build({"model": "m"})).values():
        assert deployment._deployment_config.health_check_period_s <= 1.0


def test_engines_and_policy_agree_on_the_depth() -> None:
    args = AppArgs.model_validate(
        {"model": "m", "speculative_config": {"num_speculative_tokens": 7}}
    )
    assert policy_options(args).depth == 7
    assert policy_options(args).expected_drafters == 1
    config = drafter_config(args)
    assert config is not None
    assert config.num_speculative_tokens == 7
    assert engine_options(args, "v").speculative == config


def test_without_speculation_there_is_no_drafter_anywhere() -> None:
    args = AppArgs(model="m", speculative_config=None)
    assert drafter_config(args) is None
    assert engine_options(args, "v").speculative is None
    assert policy_options(args).depth == 0


def test_threads_default_to_the_share_of_cpus() -> None:
    args = AppArgs.model_validate({"model": "m", "verifier": {"num_cpus": 6}})
    assert engine_options(args, "v").threads == 6
    args = AppArgs.model_validate({"model": "m", "verifier": {"num_cpus": 0.1}})
    assert engine_options(args, "v").threads == 1


def test_a_pool_without_gpus_never_looks_for_one() -> None:
    args = AppArgs.model_validate({"model": "m", "verifier": {"num_gpus": 1}})
    assert engine_options(args, "v").device == "auto"
    assert engine_options(AppArgs(model="m"), "v").device == "cpu"
