"""The policy deployment without Serve: bytes in, bytes out, and what is kept of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from actors.policy.options import PolicyOptions
from cluster.deployments.arguments import ArgumentsError
from cluster.deployments.policy import Policy
from pilotfish.v1 import control_pb2 as pb


def make_options(folder: Path | None = None) -> PolicyOptions:
    path = "" if folder is None else str(folder / "policy")
    return PolicyOptions(depth=4, colocated=True, state_path=path)


async def fallback(policy: Policy) -> int:
    data = await policy.exchange(pb.VerifierStatus(verifier="v").SerializeToString(), 0, 0)
    assert data is not None
    return pb.PolicySnapshot.FromString(data).fallback.depth


async def test_the_deployments_configuration_is_in_the_next_snapshot() -> None:
    policy = Policy(make_options())
    await policy.reconfigure({"num_speculative_tokens": 3})
    assert await fallback(policy) == 3


async def test_a_change_by_its_handle_takes_effect_and_a_bad_one_changes_nothing() -> None:
    policy = Policy(make_options())
    now = await policy.configure({"num_speculative_tokens": 2})
    assert now["num_speculative_tokens"] == 2
    with pytest.raises(ArgumentsError, match="num_speculative_tokens: 5 is above the 4"):
        await policy.configure({"num_speculative_tokens": 5, "speculation": False})
    assert await policy.configuration() == now
    assert await fallback(policy) == 2


async def test_a_change_outlives_the_actor_where_its_state_is_kept(tmp_path: Path) -> None:
    policy = Policy(make_options(tmp_path))
    await policy.reconfigure({"num_speculative_tokens": 4})
    await policy.configure({"num_speculative_tokens": 2})
    again = Policy(make_options(tmp_path))
    await again.reconfigure({"num_speculative_tokens": 4})
    assert await fallback(again) == 2
    await again.reconfigure({"num_speculative_tokens": 3})
    assert await fallback(again) == 3
