"""Two pools of drafters, two verifiers, and policy actors that die or are two: the text is that of
standard decode, no request is lost, and in the end one policy actor speaks."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from actors.policy.errors import Superseded
from cluster.deployments.arguments import ArgumentsError
from pilotfish import Client, PilotfishError, Status
from pilotfish.v1 import control_pb2
from tests.checkpoints import eagle
from tests.integration.conftest import Deploy, Deployed
from tests.integration.load import PROMPT, Text, text, writing
from tests.integration.processes import eventually, kill, ready

pytestmark = pytest.mark.cluster

LONG = 400
POOLS = {"suffix", "eagle3"}
LONG_S = 90.0
"""At most: a replica is replaced within ten seconds, but not on a busy machine."""


@pytest.fixture(scope="module")
def pools(deploy: Deploy, tmp_path_factory: pytest.TempPathFactory) -> Deployed:
    """One of the pools reads features."""
    head = tmp_path_factory.mktemp("eagle3")
    eagle.shallow(head)
    return deploy(
        by_hand=True,
        speculative_config=[
            {"method": "suffix", "num_speculative_tokens": 4},
            {"method": "eagle3", "model": str(head), "num_speculative_tokens": 3},
        ],
        verifier={"num_replicas": 2, "num_cpus": 0.1, "threads": 1},
        gateway={"num_cpus": 0.1, "takeover_timeout_s": 60.0},
    )


@pytest.fixture(scope="module")
def client(pools: Deployed) -> Iterator[Client]:
    with pools.client() as client:
        yield client


@pytest.fixture(scope="module")
def standard(client: Client) -> list[Text]:
    """The texts that nobody drafted for, by seed."""
    return [text(client, seed, LONG, 0) for seed in range(2)]


@pytest.fixture(autouse=True)
def at_rest(pools: Deployed, client: Client) -> None:
    """What an earlier test ended is there again."""
    eventually(lambda: ready(client), LONG_S)


def drafted_by(client: Client) -> set[str]:
    """Mechanisms whose blocks have come, at whichever verifier."""
    links = [link for verifier in client.status().verifiers for link in verifier.links]
    return {link.mechanism for link in links if link.blocks_answered}


def newer_term(client: Client, term: int) -> Status | None:
    """The status by a younger policy, once there is one."""
    try:
        status = client.status()
    except PilotfishError:
        return None
    return status if status.term > term else None


def reigns(app: Deployed) -> list[int]:
    """Of each policy actor its term, smallest first; 0 for one that another one has silenced. One
    that has not spoken yet is left out."""
    from ray import serve

    policy = serve.get_deployment_handle("Policy", app_name=app.name)
    answers = policy.broadcast("status").results(timeout_s=10.0, return_exceptions=True)
    terms: list[int] = []
    for answer in answers:
        if isinstance(answer, bytes):
            status = control_pb2.Status.FromString(answer)
            terms += [status.snapshot.term] if status.HasField("snapshot") else []
        elif isinstance(answer, Superseded):
            terms.append(0)
    return sorted(terms)


def configured(app: Deployed) -> set[int]:
    """D of the configuration that each verifier knows."""
    return {report.config.depth for report in app.verifiers()}


def test_both_pools_draft_and_the_text_is_that_of_standard_decode(
    client: Client, standard: list[Text]
) -> None:
    with writing(client, range(2), LONG) as texts:
        eventually(lambda: drafted_by(client) == POOLS, LONG_S)
    assert [each.result(timeout=60.0) for each in texts] == [{one} for one in standard]
    options = {"max_tokens": LONG, "temperature": 0.0}
    greedy = client.generate(PROMPT, **options)
    assert greedy.token_ids == client.generate(PROMPT, speculative_n_max=0, **options).token_ids


def test_drafters_of_both_pools_killed_under_load_change_no_text_and_come_back(
    client: Client, standard: list[Text]
) -> None:
    before = {drafter.pid for drafter in client.status().drafters}
    with writing(client, range(2), LONG) as texts:
        eventually(lambda: any(v.running for v in client.status().verifiers), LONG_S)
        for pid in before:
            kill(pid)
        eventually(
            lambda: ready(client) and not before & {d.pid for d in client.status().drafters},
            LONG_S,
        )
    assert [each.result(timeout=60.0) for each in texts] == [{one} for one in standard]


def test_a_policy_killed_under_load_changes_no_text_and_its_successor_knows_what_it_knew(
    pools: Deployed, client: Client, standard: list[Text]
) -> None:
    """Laws L1 and L2: verifiers go on by their newest snapshot."""
    before = client.status()
    (policy,) = pools.placements("Policy")
    with writing(client, range(2), LONG) as texts:
        eventually(lambda: any(v.running for v in client.status().verifiers), LONG_S)
        kill(policy["pid"])
        orphaned = client.generate("abcdabcdabcdabcd", max_tokens=30, temperature=0).speculation
        after = eventually(lambda: newer_term(client, before.term), LONG_S)
    assert "no-drafter" not in orphaned.reasons
    assert after.fallback == before.fallback
    assert after.drafters == before.drafters
    assert [each.result(timeout=60.0) for each in texts] == [{one} for one in standard]


def test_a_change_made_while_serving_outlives_the_policy_that_made_it(
    pools: Deployed, client: Client
) -> None:
    """Without a file: the verifiers remember."""
    from ray import serve

    policy = serve.get_deployment_handle("Policy", app_name=pools.name)
    with pytest.raises(ArgumentsError, match="num_speculative_tokens: 9 is above the 4"):
        policy.configure.remote({"num_speculative_tokens": 9}).result(timeout_s=10.0)
    change = {"num_speculative_tokens": 2, "control": {"steps": 1, "period": 64}}
    now = policy.configure.remote(change).result(timeout_s=10.0)
    assert now["num_speculative_tokens"] == 2
    before = client.status()
    assert before.fallback.depth == 2
    # Known to each verifier, and not to the actor alone.
    eventually(lambda: configured(pools) == {2}, LONG_S)
    (placed,) = pools.placements("Policy")
    kill(placed["pid"])
    eventually(lambda: newer_term(client, before.term), LONG_S)
    eventually(lambda: client.status().fallback.depth == 2, LONG_S)
    policy.configure.remote({"num_speculative_tokens": None}).result(timeout_s=10.0)
    eventually(lambda: configured(pools) == {4}, LONG_S)


def test_of_two_policies_by_mistake_the_later_one_speaks_and_the_other_is_silent(
    pools: Deployed, client: Client, standard: list[Text]
) -> None:
    (first,) = reigns(pools)
    with writing(client, range(2), LONG) as texts:
        pools.scale("Policy", 2)
        _, second = eventually(lambda: one_of_two(pools), LONG_S)
        assert second > first
        seen = []
        for _ in range(8):
            client.generate(PROMPT, max_tokens=40, temperature=0)
            seen.append(client.status().term)
        assert seen == sorted(seen)
        assert seen[0] >= second
        eventually(lambda: ready(client), LONG_S)
        assert eventually(lambda: one_of_two(pools), LONG_S)[1] >= seen[-1]
    assert [each.result(timeout=60.0) for each in texts] == [{one} for one in standard]


def one_of_two(app: Deployed) -> list[int]:
    """The reigns, once one of two policy actors speaks and the other does not."""
    terms = reigns(app)
    return terms if len(terms) == 2 and terms[0] == 0 < terms[1] else []


def one_alone(app: Deployed) -> list[int]:
    """The reign, once there is one policy actor and it speaks."""
    terms = reigns(app)
    return terms if len(terms) == 1 and terms[0] else []


def test_when_the_mistake_is_undone_the_policy_that_is_left_speaks(
    pools: Deployed, client: Client, standard: list[Text]
) -> None:
    """Serve ends the later one, to which the other gave way."""
    pools.scale("Policy", 2)
    _, before = eventually(lambda: one_of_two(pools), LONG_S)
    eventually(lambda: ready(client), LONG_S)
    drafters = {drafter.pid for drafter in client.status().drafters}
    with writing(client, range(2), LONG) as texts:
        pools.scale("Policy", 1)
        (after,) = eventually(lambda: one_alone(pools), LONG_S)
        eventually(lambda: ready(client), LONG_S)
    assert after >= before
    assert {drafter.pid for drafter in client.status().drafters} == drafters
    assert [each.result(timeout=60.0) for each in texts] == [{one} for one in standard]
