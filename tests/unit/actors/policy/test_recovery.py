"""The policy actor is killed, restarted, doubled, cut off: verifiers go on, and nothing that they
or it knew is lost. Time is what the test says it is."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from actors.policy.errors import Superseded
from actors.policy.learnt import PUBLISH_EVERY_S
from actors.policy.state_file import StateFile
from cluster.deployments.exchanging import EVERY_S
from cluster.deployments.speaking import ASK_AGAIN_S
from pilotfish.v1 import control_pb2 as pb
from policies.estimate import EVERYONE
from policies.live import Settings
from policies.reign import DESERTED
from tests.unit.actors.policy.builders import CHAT, Clock, Verifier, make_service, pooled_blocks


def pause(clock: Clock) -> None:
    """Until what was reported is published."""
    clock.now_s += PUBLISH_EVERY_S


def test_what_one_verifier_has_learnt_the_next_one_begins_with() -> None:
    clock = Clock()
    policy, old, new = make_service(clock), Verifier("old"), Verifier("new")
    old.learn(40)
    old.exchange(policy)
    new.exchange(policy)
    assert new.begins()[CHAT].accept.accepted[2] > 0
    assert new.begins()[EVERYONE, "suffix"].accept.accepted[2] > 0


def test_sums_are_published_now_and_then_and_not_with_each_report() -> None:
    clock = Clock()
    policy, verifier = make_service(clock), Verifier("v")
    verifier.learn()
    verifier.exchange(policy)
    first = verifier.heard
    verifier.learn()
    verifier.exchange(policy)
    assert verifier.heard == first
    pause(clock)
    verifier.exchange(policy)
    assert verifier.heard > first
    assert pooled_blocks(policy) == pytest.approx(16.0, rel=0.02)


def test_an_idle_verifier_is_sent_nothing_and_sends_nothing_again() -> None:
    clock = Clock()
    policy, verifier = make_service(clock), Verifier("v")
    for _ in range(2):  # the second is heard in a term that it knows
        verifier.learn()
        pause(clock)
        verifier.exchange(policy)
    status = pb.VerifierStatus(verifier="v")
    heard = verifier.heard
    for _ in range(3):
        pause(clock)
        assert not verifier.exchanging.report(status, verifier.tally.taken()).tallies
        verifier.exchange(policy)
    assert verifier.heard == heard


def test_a_report_whose_answer_is_lost_is_sent_again_and_counts_once() -> None:
    clock = Clock()
    policy, verifier = make_service(clock), Verifier("v")
    verifier.learn(8)
    verifier.exchange(policy, answer_lost=True)
    verifier.exchange(policy, answer_lost=True)
    verifier.exchange(policy)
    assert pooled_blocks(policy) == 8.0


def test_where_verifiers_are_many_each_exchanges_less_often() -> None:
    policy, verifier = make_service(Clock()), Verifier("v")
    verifier.exchange(policy)
    assert verifier.exchanging.pause_s(busy=True) == 1.0
    for number in range(300):
        policy.exchange(pb.VerifierStatus(verifier=f"v{number}"), *verifier.heard)
    verifier.exchange(policy)
    assert verifier.exchanging.pause_s(busy=True) == 3.0
    assert verifier.exchanging.pause_s(busy=False) == 6.0
    assert len(policy.status().verifiers) == 301


def test_while_the_policy_is_down_a_verifier_goes_on_by_its_newest_snapshot() -> None:
    clock = Clock()
    policy, verifier = make_service(clock), Verifier("v")
    verifier.exchange(policy)
    policy.configure(Settings(2))
    verifier.exchange(policy)
    heard = verifier.heard
    for _ in range(100):
        clock.now_s += 60.0
        verifier.learn()
        verifier.exchange(None)
    assert verifier.heard == heard
    assert verifier.depth == 2


def test_a_policy_that_was_killed_learns_everything_again_from_the_verifiers() -> None:
    clock = Clock()
    policy, verifiers = make_service(clock), [Verifier(name) for name in "abc"]
    for number, verifier in enumerate(verifiers, 1):
        verifier.learn(8 * number)
        verifier.exchange(policy)
    pause(clock)
    for verifier in verifiers:
        verifier.exchange(policy)
    policy.configure(Settings(3, limits={"code": 0}))
    verifiers[0].exchange(policy)  # the change has reached one of them
    before = pooled_blocks(policy)

    clock.now_s += 2.0
    policy = make_service(clock)
    policy.deploy(Settings(4))
    for verifier in reversed(verifiers):
        verifier.exchange(policy)
    assert policy.settings == Settings(3, limits={"code": 0})
    for verifier in verifiers:
        verifier.exchange(policy)  # the term is another one: they send their totals
    pause(clock)
    assert pooled_blocks(policy) == pytest.approx(before, rel=0.02)
    for verifier in verifiers:
        verifier.exchange(policy)
        assert verifier.depth == 3


def test_a_deployment_of_another_configuration_wins_over_changes_to_the_old_one() -> None:
    clock = Clock()
    policy, verifier = make_service(clock), Verifier("v")
    policy.deploy(Settings(4))
    verifier.exchange(policy)
    policy.configure(Settings(1))
    verifier.exchange(policy)
    clock.now_s += 2.0
    policy = make_service(clock)
    policy.deploy(Settings(3))
    verifier.exchange(policy)
    assert verifier.depth == 3


def test_where_everything_ends_at_once_the_state_file_has_it(tmp_path: Path) -> None:
    clock, file = Clock(), StateFile(tmp_path / "kept" / "policy")
    policy, verifier = make_service(clock, term=2**60, state=file.load()), Verifier("v")
    verifier.learn(8)
    verifier.exchange(policy)
    policy.configure(Settings(2))
    assert file.save(policy.state())

    again = make_service(clock, state=file.load())  # the clock is behind the kept term
    again.deploy(Settings(4))
    assert again.settings == Settings(2)
    pause(clock)
    assert pooled_blocks(again) == pytest.approx(8.0, rel=0.02)
    verifier.exchange(again)
    assert verifier.heard[0] > 2**60
    verifier.exchange(again)  # its own totals again, beside what was kept of them
    pause(clock)
    assert pooled_blocks(again) == pytest.approx(8.0, rel=0.02)


def test_a_state_file_that_cannot_be_read_is_put_aside(tmp_path: Path) -> None:
    path = tmp_path / "policy"
    path.write_bytes(b"\xff" * 40)
    assert StateFile(path).load() is None
    assert (tmp_path / "policy.unreadable").read_bytes() == b"\xff" * 40
    assert StateFile(path).load() is None


def test_a_state_that_cannot_be_written_is_said_and_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "policy").mkdir()
    assert not StateFile(tmp_path / "policy").save(make_service(Clock()).state())
    assert [path.name for path in tmp_path.iterdir()] == ["policy"]


def test_bad_parts_of_a_kept_state_are_left_out_and_the_rest_is_taken() -> None:
    clock, verifier = Clock(), Verifier("v")
    policy = make_service(clock)
    verifier.learn(8)
    verifier.exchange(policy)
    state = policy.state()
    state.contributions.add(verifier="bad", sequence=1, age_s=-1.0)
    state.config.depth = 999
    again = make_service(clock, state=state)
    assert again.settings == Settings(4)
    pause(clock)
    assert pooled_blocks(again) == pytest.approx(8.0, rel=0.02)


def test_of_two_policies_the_later_one_speaks_and_the_other_finds_out() -> None:
    clock = Clock()
    first, second = make_service(clock, term=10), make_service(clock, term=20)
    verifier = Verifier("v")
    verifier.exchange(first)
    verifier.exchange(second)
    assert verifier.heard[0] == 20
    first.configure(Settings(1))  # it does not know yet
    verifier.exchange(first)
    assert verifier.heard[0] == 20
    assert isinstance(verifier.refused[-1], Superseded)
    with pytest.raises(Superseded, match="20"):
        first.configure(Settings(2))
    with pytest.raises(Superseded):
        first.renew(pb.DrafterEndpoint(drafter="d"))
    for call in (first.state, first.status, partial(first.release, "d")):
        with pytest.raises(Superseded):
            call()
    verifier.exchange(second)
    assert verifier.depth == 4


def test_two_policies_never_take_turns_however_verifiers_are_routed() -> None:
    clock = Clock()
    policies = make_service(clock, term=10), make_service(clock, term=20)
    verifiers = [Verifier(name) for name in "abcd"]
    terms: list[set[int]] = []
    for turn in range(12):
        for number, verifier in enumerate(verifiers):
            verifier.learn()
            verifier.exchange(policies[(turn + number) % 2])
        clock.now_s += 1.0
        terms.append({verifier.heard[0] for verifier in verifiers})
    assert terms[1:] == [{20}] * 11


def test_a_successor_whose_clock_is_behind_speaks_all_the_same() -> None:
    clock = Clock()
    policy, verifier = make_service(clock, term=10_000), Verifier("v")
    verifier.exchange(policy)
    successor = make_service(clock, term=500)
    successor.deploy(Settings(2))
    verifier.exchange(successor)
    assert verifier.heard[0] == 10_001
    assert verifier.depth == 2


def test_of_two_the_silent_one_speaks_again_when_it_alone_is_left() -> None:
    """Whoever undoes the mistake may end the one that speaks. What was changed there stays."""
    clock = Clock()
    first = make_service(clock, term=10, expected=1)
    second, verifier = make_service(clock, term=20), Verifier("v")
    first.renew(pb.DrafterEndpoint(drafter="gone"))
    verifier.exchange(first)
    verifier.exchange(second)
    second.configure(Settings(2))
    verifier.exchange(second)
    for _ in range(DESERTED):
        assert verifier.heard[0] == 20
        verifier.exchange(first)
        assert verifier.exchanging.pause_s(busy=False) == ASK_AGAIN_S
    verifier.exchange(first)  # it waits for its drafters, as a young one does
    assert verifier.heard[0] == 20
    assert verifier.exchanging.pause_s(busy=True) == EVERY_S
    first.renew(pb.DrafterEndpoint(drafter="d"))
    verifier.exchange(first)
    assert verifier.heard[0] == 21
    assert [drafter.drafter for drafter in verifier.plan.snapshot.drafters] == ["d"]
    assert verifier.depth == 2


def test_refusals_with_an_answer_between_them_make_nobody_speak() -> None:
    clock = Clock()
    first, second = make_service(clock, term=10), make_service(clock, term=20)
    verifier = Verifier("v")
    verifier.exchange(first)
    for _ in range(4):
        for policy in (second, *[first] * (DESERTED - 1)):
            verifier.exchange(policy)
    assert verifier.heard[0] == 20
    with pytest.raises(Superseded):
        first.check_reign()


def test_cut_off_from_each_other_both_go_on_and_meet_again_without_loss() -> None:
    clock = Clock()
    policy, near, far = make_service(clock), Verifier("near"), Verifier("far")
    for verifier in (near, far):
        verifier.exchange(policy)
    heard = far.heard
    policy.configure(Settings(2))
    for _ in range(30):
        clock.now_s += 1.0
        near.learn(1)
        far.learn(1)
        near.exchange(policy)
        far.exchange(None)
    assert (near.depth, far.depth) == (2, 4)
    assert far.heard == heard
    far.exchange(policy)
    pause(clock)
    far.exchange(policy)
    assert far.depth == 2
    assert pooled_blocks(policy) == pytest.approx(60.0, rel=0.1)
