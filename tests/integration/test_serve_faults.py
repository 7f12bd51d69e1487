"""Processes die in mid-stream, clients leave: the text goes on, and nothing leaks."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from pilotfish import Client, Generation, UnavailableError
from tests.integration.conftest import Deploy, Deployed
from tests.integration.processes import eventually, kill

pytestmark = pytest.mark.cluster

PROMPT = "abcabcabcabdabcabcabe"
LONG = 400


@pytest.fixture(scope="module")
def app(deploy: Deploy) -> Deployed:
    """Two verifiers, one drafter."""
    return deploy(
        speculative_config={"method": "suffix", "num_speculative_tokens": 4},
        verifier={"num_replicas": 2, "num_cpus": 0.1, "threads": 1},
        gateway={"num_cpus": 0.1, "takeover_timeout_s": 30.0},
    )


@pytest.fixture(scope="module")
def client(app: Deployed) -> Iterator[Client]:
    with app.client() as client:
        yield client


@pytest.fixture(scope="module")
def whole(client: Client) -> Generation:
    """The text nobody disturbed, long enough to find out who writes it while it is written."""
    return client.generate(
        PROMPT, max_tokens=2 * LONG, temperature=1.0, seed=7, speculative_n_max=0
    )


def running(client: Client) -> list[int]:
    """Engine pids of the verifiers that run a request now."""
    return [v.pid for v in client.status().verifiers if v.running]


def ready(client: Client, verifiers: int) -> bool:
    status = client.status()
    return len(status.verifiers) == verifiers and all(
        any(link.up for link in v.links) for v in status.verifiers
    )


def test_a_stream_whose_verifier_is_killed_goes_on_from_its_committed_tokens(
    client: Client, whole: Generation
) -> None:
    eventually(lambda: ready(client, 2), 60.0)
    ids: list[int] = []
    killed = 0
    with client.stream(PROMPT, max_tokens=2 * LONG, temperature=1.0, seed=7) as deltas:
        for number, delta in enumerate(deltas):
            ids.extend(delta.token_ids)
            if number == 10:
                (killed,) = running(client)
                kill(killed)
    assert tuple(ids) == whole.token_ids
    assert killed
    eventually(lambda: ready(client, 2), 60.0)
    assert killed not in [v.pid for v in client.status().verifiers]


def test_two_hundred_cancelled_streams_leave_no_slot_taken(app: Deployed, client: Client) -> None:
    """Pitfall R01, over HTTP and gRPC alike."""
    eventually(lambda: ready(client, 2), 60.0)
    rng = random.Random(0)
    delays = [rng.uniform(0.0, 0.05) for _ in range(200)]

    def over_http(delay_s: float) -> None:
        body = {"prompt": PROMPT, "max_tokens": LONG, "temperature": 1, "stream": True}
        deadline = time.monotonic() + delay_s
        try:
            with httpx.stream(
                "POST", f"{app.http_url}/v1/completions", json=body, timeout=max(delay_s, 0.001)
            ) as response:
                for _ in response.iter_raw():
                    if time.monotonic() > deadline:
                        return
        except httpx.TimeoutException:
            return

    def over_grpc(delay_s: float) -> None:
        with client.stream(PROMPT, max_tokens=LONG, temperature=1.0) as deltas:
            time.sleep(delay_s)
            deltas.close()

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(over_http, delays[:100]))
        list(pool.map(over_grpc, delays[100:]))

    def idle() -> bool:
        verifiers = client.status().verifiers
        return all(
            v.running == v.waiting == 0 and v.free_blocks == v.total_blocks for v in verifiers
        )

    eventually(idle, 30.0)
    assert client.generate(PROMPT, max_tokens=4, temperature=0).usage.completion_tokens == 4


def test_a_gateway_that_is_killed_leaves_no_request_running(app: Deployed) -> None:
    # The last test of `app`: the next gateway listens on another port.
    with app.client() as client:
        streams = [client.stream(PROMPT, max_tokens=LONG * 4, temperature=1.0) for _ in range(4)]
        for stream in streams:
            next(iter(stream))
        (gateway,) = app.placements("Gateway")
        kill(gateway["pid"])
        for stream in streams:
            with pytest.raises(UnavailableError):
                stream.read()
    verifiers = app.verifiers()
    assert len(verifiers) == 2
    eventually(lambda: not any(v.running + v.waiting for v in app.verifiers()), 30.0)


def stream_and_kill(client: Client, received: list[int]) -> None:
    """Stream a long text; the only engine dies after a few deltas."""
    (engine,) = client.status().verifiers
    with client.stream(PROMPT, max_tokens=LONG * 3, temperature=1.0) as deltas:
        for number, delta in enumerate(deltas):
            received.extend(delta.token_ids)
            if number == 3:
                kill(engine.pid)


def test_with_no_verifier_left_a_stream_ends_in_an_explicit_error(deploy: Deploy) -> None:
    """Pitfall R05: never a clean end."""
    alone = deploy(gateway={"num_cpus": 0.1, "takeover_timeout_s": 0.5}, speculative_config=None)
    with alone.client() as client:
        received: list[int] = []
        with pytest.raises(UnavailableError):
            stream_and_kill(client, received)
        assert 0 < len(received) < LONG * 3

        def served() -> bool:
            try:
                return bool(client.generate(PROMPT, max_tokens=2, temperature=0).text)
            except UnavailableError:
                return False

        eventually(served, 60.0, every_s=0.5)


def test_the_same_over_http_ends_without_done(deploy: Deploy) -> None:
    alone = deploy(gateway={"num_cpus": 0.1, "takeover_timeout_s": 0.5}, speculative_config=None)
    body = {"prompt": PROMPT, "max_tokens": LONG * 3, "temperature": 1, "stream": True}
    lines: list[str] = []
    with alone.client() as client:
        (engine,) = client.status().verifiers
    with (
        httpx.stream("POST", f"{alone.http_url}/v1/completions", json=body, timeout=60) as response,
    ):
        for line in response.iter_lines():
            lines += [line] if line else []
            if len(lines) == 4:
                kill(engine.pid)
    assert "[DONE]" not in lines[-1]
    assert '"error"' in lines[-1]
