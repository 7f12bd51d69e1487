"""Leases and configuration in, versioned snapshots out."""

from __future__ import annotations

from dataclasses import replace

from actors.policy.options import PolicyOptions
from actors.policy.service import PolicyService
from pilotfish.v1 import control_pb2 as pb
from policies.exchange_rate import forget_s
from policies.live import Settings


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def make_endpoint(name: str = "d0", pid: int = 7) -> pb.DrafterEndpoint:
    return pb.DrafterEndpoint(
        drafter=name, address=f"127.0.0.1:{pid}", mechanism="suffix", pid=pid, max_sessions=64
    )


def make_policy(
    clock: Clock, depth: int = 4, expected: int = 0, term: int = 1, colocated: bool = False
) -> PolicyService:
    options = PolicyOptions(depth=depth, expected_drafters=expected, colocated=colocated)
    return PolicyService(options, term=term, clock=clock)


def must(snapshot: pb.PolicySnapshot | None) -> pb.PolicySnapshot:
    assert snapshot is not None
    return snapshot


def test_without_drafters_every_cohort_decodes_plainly_with_the_reason() -> None:
    plan = must(make_policy(Clock()).snapshot()).fallback
    assert (plan.depth, plan.reason) == (0, "no-drafter")


def test_a_registered_drafter_is_in_the_next_snapshot_whole() -> None:
    policy = make_policy(Clock())
    policy.renew(make_endpoint())
    snapshot = must(policy.snapshot())
    assert list(snapshot.drafters) == [make_endpoint()]
    assert (snapshot.fallback.depth, snapshot.fallback.reason) == (4, "configured")


def test_a_drafter_that_stops_renewing_is_gone_after_its_lease() -> None:
    clock = Clock()
    policy = make_policy(clock)
    policy.renew(make_endpoint())
    clock.now_s += 2.9
    assert must(policy.snapshot()).drafters
    clock.now_s += 0.1
    snapshot = must(policy.snapshot())
    assert not snapshot.drafters
    assert snapshot.fallback.reason == "no-drafter"


def test_a_drafter_that_leaves_is_gone_at_once() -> None:
    policy = make_policy(Clock())
    policy.renew(make_endpoint())
    policy.release("d0")
    assert not must(policy.snapshot()).drafters


def test_versions_grow_with_changes_only() -> None:
    policy = make_policy(Clock())
    policy.renew(make_endpoint())
    first = must(policy.snapshot()).version
    policy.renew(make_endpoint())
    assert must(policy.snapshot()).version == first
    policy.renew(make_endpoint(pid=8))
    assert must(policy.snapshot()).version > first


def test_an_exchange_brings_only_what_is_newer() -> None:
    policy = make_policy(Clock())
    policy.renew(make_endpoint())
    report = pb.VerifierStatus(verifier="v0", pid=1)
    snapshot = must(policy.exchange(report, 0, 0))
    assert policy.exchange(report, snapshot.term, snapshot.version) is None
    policy.release("d0")
    newer = must(policy.exchange(report, snapshot.term, snapshot.version))
    assert (newer.term, newer.version) > (snapshot.term, snapshot.version)


def test_a_restarted_policy_supersedes_however_young_its_version() -> None:
    clock = Clock()
    old = make_policy(clock, term=1)
    for pid in range(1, 20):
        old.renew(make_endpoint(pid=pid))
    before = must(old.snapshot())
    new = make_policy(clock, term=2)
    assert new.exchange(pb.VerifierStatus(verifier="v0"), before.term, before.version) is not None


def test_a_young_policy_is_silent_until_its_drafters_are_back() -> None:
    clock = Clock()
    policy = make_policy(clock, expected=2, term=2)
    report = pb.VerifierStatus(verifier="v0")
    assert policy.exchange(report, 1, 9) is None
    policy.renew(make_endpoint("d0"))
    assert policy.exchange(report, 1, 9) is None
    policy.renew(make_endpoint("d1", pid=8))
    assert len(must(policy.exchange(report, 1, 9)).drafters) == 2


def test_a_young_policy_waits_one_lease_at_most() -> None:
    clock = Clock()
    policy = make_policy(clock, expected=2)
    clock.now_s += 3.0
    policy.renew(make_endpoint("d0"))
    assert len(must(policy.snapshot()).drafters) == 1


def test_a_new_depth_is_a_new_version_and_the_same_one_is_not() -> None:
    policy = make_policy(Clock())
    policy.renew(make_endpoint())
    before = must(policy.snapshot())
    policy.configure(Settings(2))
    after = must(policy.snapshot())
    assert after.version > before.version
    assert after.fallback.depth == 2
    policy.deploy(Settings(4))
    assert must(policy.snapshot()).version == after.version


def test_a_live_change_is_in_the_next_snapshot_whole() -> None:
    policy = make_policy(Clock())
    policy.renew(make_endpoint())
    windows = replace(Settings(3).windows, steps=4, period=256)
    policy.configure(Settings(3, windows=windows, limits={"code": 1, "batch": 0}))
    snapshot = must(policy.snapshot())
    assert (snapshot.config.control.steps, snapshot.config.control.period) == (4, 256)
    plans = [(plan.cohort, plan.depth, plan.reason) for plan in snapshot.cohorts]
    assert plans == [("batch", 0, "off"), ("code", 1, "configured")]
    policy.configure(Settings(3, off=True))
    snapshot = must(policy.snapshot())
    assert (snapshot.fallback.depth, snapshot.fallback.reason) == (0, "off")


def test_no_change_asks_for_more_than_drafters_were_started_for() -> None:
    policy = make_policy(Clock(), depth=4)
    policy.renew(make_endpoint())
    policy.configure(Settings(9, limits={"code": 8}))
    snapshot = must(policy.snapshot())
    assert [snapshot.fallback.depth, *(plan.depth for plan in snapshot.cohorts)] == [4, 4]


def test_a_colocated_drafter_drafts_without_any_lease() -> None:
    assert must(make_policy(Clock(), colocated=True).snapshot()).fallback.depth == 4


def test_status_forgets_verifiers_that_fell_silent() -> None:
    clock = Clock()
    policy = make_policy(clock)
    policy.exchange(pb.VerifierStatus(verifier="v0", pid=1), 0, 0)
    clock.now_s += forget_s(1) - 1
    policy.exchange(pb.VerifierStatus(verifier="v1", pid=2), 0, 0)
    assert [v.verifier for v in policy.status().verifiers] == ["v0", "v1"]
    clock.now_s += 1.5
    assert [v.verifier for v in policy.status().verifiers] == ["v1"]
