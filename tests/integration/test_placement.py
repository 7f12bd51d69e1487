"""On a Ray with pretended GPUs: who computes where."""

from __future__ import annotations

import pytest

from tests.integration.conftest import Deploy, Deployed

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def app(deploy: Deploy) -> Deployed:
    return deploy(
        verifier={"num_replicas": 2, "num_cpus": 0.1, "num_gpus": 1, "threads": 1},
        drafter={"num_replicas": 2, "num_cpus": 0.1, "num_gpus": 0.5, "threads": 1},
    )


def test_verifiers_and_drafters_sit_in_bundles_of_their_own(app: Deployed) -> None:
    from ray.util import placement_group_table

    verifiers, drafters = app.placements("Verifier"), app.placements("Drafter")
    assert (len(verifiers), len(drafters)) == (2, 2)
    groups = [p["placement_group"] for p in verifiers + drafters]
    assert len(set(groups)) == 4
    table = placement_group_table()
    for placement in verifiers:
        bundles = table[placement["placement_group"]]["bundles"]
        assert [bundle.get("GPU", 0.0) for _, bundle in sorted(bundles.items())] == [0.0, 1.0]
    for placement in drafters:
        bundles = table[placement["placement_group"]]["bundles"]
        assert [bundle.get("GPU", 0.0) for bundle in bundles.values()] == [0.5]


def test_a_verifiers_gpu_is_nobody_elses(app: Deployed) -> None:
    verifiers, drafters = app.placements("Verifier"), app.placements("Drafter")
    targets = [gpu for p in verifiers for gpu in p["gpu_ids"]]
    draft = {gpu for p in drafters for gpu in p["gpu_ids"]}
    assert len(targets) == len(set(targets)) == 2
    assert draft
    assert not draft & set(targets)


def test_every_verifier_reaches_every_drafter(app: Deployed) -> None:
    with app.client() as client:
        status = client.status()
    drafters = {d.drafter for d in status.drafters}
    assert len(drafters) == 2
    for verifier in status.verifiers:
        assert {link.drafter for link in verifier.links if link.up} == drafters
