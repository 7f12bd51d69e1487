"""Replicas come with the load and go with it, and no request notices; drafters sleep and wake."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cluster import app as app_module
from pilotfish import Client, PilotfishError
from tests.integration.conftest import Deploy, Deployed, oracle
from tests.integration.load import text, writing
from tests.integration.processes import eventually

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

CLIENTS = 6
TOKENS = 300
LONG_S = 200.0
"""At most: replicas start within ten seconds, but not on a machine that is busy otherwise."""
QUICK = {
    "upscale_delay_s": 0.5,
    "downscale_delay_s": 3.0,
    "metrics_interval_s": 0.3,
    "look_back_period_s": 1.0,
}


@pytest.fixture(scope="module")
def app(deploy: Deploy, tiny_model: str) -> Deployed:
    """One verifier that may become two, and drafters of which there is none to begin with. D is
    fixed, so every request wants its drafts. Requests of a verifier that goes have a second to
    finish, which most will not."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(app_module._SHUTDOWN, "graceful_shutdown_timeout_s", 1.0)
        return deploy(
            speculative_config=oracle(tiny_model),
            autoscaling={
                "verifier": QUICK | {"max_replicas": 2, "target_ongoing_requests": 3},
                "drafter": QUICK
                | {"min_replicas": 0, "max_replicas": 1, "downscale_to_zero_delay_s": 2.0},
            },
        )


@pytest.fixture(scope="module")
def client(app: Deployed) -> Iterator[Client]:
    with app.client() as client:
        yield client


def verifiers(client: Client) -> int:
    try:
        return len(client.status().verifiers)
    except PilotfishError:
        return 0


def drafters(client: Client) -> int:
    try:
        return len(client.status().drafters)
    except PilotfishError:
        return -1


def drafted(client: Client) -> int:
    return sum(verifier.engine.drafted for verifier in client.status().verifiers)


def test_a_second_verifier_comes_with_the_load_and_goes_without_it_and_no_text_changes(
    client: Client,
) -> None:
    expected = [{text(client, seed, TOKENS, 0)} for seed in range(CLIENTS)]
    with writing(client, range(2), TOKENS) as few:
        with writing(client, range(2, CLIENTS), TOKENS) as others:
            eventually(lambda: verifiers(client) == 2, LONG_S, every_s=0.2)
        assert [texts.result(timeout=LONG_S) for texts in others] == expected[2:]
        eventually(lambda: verifiers(client) == 1, LONG_S, every_s=0.2)
    assert [texts.result(timeout=LONG_S) for texts in few] == expected[:2]


def test_drafters_that_nobody_wants_go_and_the_next_request_wakes_them(client: Client) -> None:
    eventually(lambda: drafters(client) == 0, LONG_S, every_s=0.2)
    standard = text(client, 7, TOKENS, 0)
    with writing(client, range(7, 8), TOKENS) as one:
        eventually(lambda: drafters(client) == 1, LONG_S, every_s=0.2)
        eventually(lambda: drafted(client), LONG_S, every_s=0.2)
    assert one[0].result(timeout=LONG_S) == {standard}
    eventually(lambda: drafters(client) == 0, LONG_S, every_s=0.2)
