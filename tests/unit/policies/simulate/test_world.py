"""Conservation laws of the simulator, and what a drafter may cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.simulate.policy import Ask, Fixed, Offer, Standard, StepView
from policies.simulate.scenario import Cohort, Fault, Phase, Scenario, ScenarioError, Way, Wire
from policies.simulate.texts import Block, Texts
from policies.simulate.world import World
from tests.unit.policies.simulate.worlds import GPU, head, play, scenario

few = settings(max_examples=12, deadline=None)


@few
@given(
    st.integers(0, 3),
    st.integers(1, 5),
    st.sampled_from(["head", "suffix"]),
    st.integers(1, 8),
    st.sampled_from(["none", "dead", "slow", "useless"]),
)
def test_every_token_is_a_rounds_own_or_an_accepted_draft(
    seed: int, clients: int, way: str, depth: int, trouble: str
) -> None:
    faults = [] if trouble == "none" else [Fault(way, trouble, 0.2, 0.5)]
    told = scenario(seed=seed, clients=clients, faults=faults, duration_s=0.8)
    account = play(told, Fixed(way, depth)).account
    assert account.tokens == account.rounds + account.accepted
    assert 0 <= account.accepted <= account.drafted
    assert sum(part.tokens for part in account.bins) == account.tokens
    assert sum(account.by_cohort.values()) == account.tokens
    assert account.finished <= account.arrived
    assert 1.0 <= account.acceptance_length <= 1 + depth


def test_the_same_seed_is_the_same_run_and_another_is_not() -> None:
    first, again = (play(scenario(seed=3), head()).account for _ in range(2))
    assert first == again
    assert play(scenario(seed=4), head()).account != first


def test_what_is_drafted_changes_neither_who_comes_nor_when() -> None:
    told = Scenario(
        duration_s=1.0,
        cohorts={"chat": Cohort(20, 30, 0.5)},
        ways=scenario().ways,
        phases=(Phase(0.0, rate={"chat": 25.0}),),
    )
    assert play(told, Standard()).account.arrived == play(told, head()).account.arrived > 5


def test_nothing_accepted_never_beats_standard_decode() -> None:
    for way in ("head", "suffix"):
        told = scenario(faults=[Fault(way, "useless")])
        plain, drafted = play(told, Standard()).account, play(told, Fixed(way, 4)).account
        assert drafted.accepted == 0 < drafted.drafted
        assert drafted.tokens < plain.tokens


def test_everything_accepted_is_one_plus_d_tokens_a_round() -> None:
    told = scenario(clients=1)
    sure = replace(told.ways["head"], acceptance={"chat": (1.0,)})
    told = replace(told, ways={"head": sure})
    account = play(told, head(4)).account
    whole = [part for part in account.bins if part.rounds]
    assert account.accepted == account.drafted
    assert max(part.tokens / part.rounds for part in whole) == 5.0


class Sparing(Standard):
    """Asks for four tokens and verifies one of them."""

    def ask(self, view: StepView) -> list[Ask]:
        return [Ask(row.request, "head", 4) for row in view.rows if row.left > 4]

    def worth_s(self, view: StepView, missing: Sequence[Ask]) -> float:
        return 0.05

    def choose(self, view: StepView, offers: Sequence[Offer]) -> dict[int, tuple[str, int]]:
        return {offer.request: (offer.way, 1) for offer in offers}


def test_right_tokens_that_were_not_verified_are_not_written() -> None:
    told = scenario(clients=1)
    told = replace(told, ways={"head": replace(told.ways["head"], acceptance={"chat": (1.0,)})})
    account = play(told, Sparing()).account
    assert account.accepted == account.drafted > 0
    assert account.acceptance_length <= 2.0
    assert account.tokens == account.rounds + account.accepted


class Patient(Fixed):
    """Notes what it let a step wait at most."""

    granted_s = 0.0

    def late(self, asks: object) -> None:  # type: ignore[override]
        Patient.granted_s += self.patience_s


def test_a_dead_drafter_costs_the_waits_it_was_granted_and_nothing_else() -> None:
    """One request after another: each step takes what it takes without speculation, plus a wait of
    at most what the policy granted, until the breaker has isolated both drafters."""
    Patient.granted_s = 0.0
    told = scenario(clients=1, faults=[Fault("head", "dead")], duration_s=12.0)
    dead, plain = play(told, Patient("head", 4, 0.01)).account, play(told, Standard()).account
    assert dead.drafted == dead.accepted == 0
    assert dead.waited_s <= Patient.granted_s + 1e-9
    assert dead.verify_s + dead.waited_s == pytest.approx(12.0, abs=0.05)
    a_step_s = plain.verify_s / plain.steps
    assert dead.steps == pytest.approx(plain.steps - dead.waited_s / a_step_s, abs=12)
    # and there is an end to it: isolated drafters are not asked
    tail = dead.bins[len(dead.bins) // 2 :]
    assert sum(part.tokens for part in tail) > 0.97 * sum(
        part.tokens for part in plain.bins[len(plain.bins) // 2 :]
    )


def test_sessions_of_a_dead_drafter_go_to_the_other_and_come_back() -> None:
    told = scenario(clients=4, faults=[Fault("head", "dead", 0.5, drafter=0)], duration_s=6.0)
    world = play(told, head())
    assert world.drafting.drafters["head"][0].busy_s < world.drafting.drafters["head"][1].busy_s
    late = world.account.bins[-20:]
    assert sum(p.drafted for p in late) > 3.0 * sum(p.rounds for p in late)


def test_a_late_block_serves_by_the_tail_that_is_still_right() -> None:
    block = Block("head", base=100, asked=4, size=4, right=2)
    assert [block.usable(length) for length in (99, 100, 101, 102, 103)] == [0, 4, 3, 2, 0]
    assert [block.decided(length) for length in (100, 102, 103)] == [False, False, True]


@given(st.integers(0, 99), st.lists(st.floats(0, 1), min_size=1, max_size=4), st.integers(1, 9))
def test_right_tokens_come_as_often_as_the_scenario_says(
    seed: int, rates: list[float], depth: int
) -> None:
    told = replace(
        scenario(seed=seed), ways={"w": Way("remote", {"chat": tuple(rates)}, max_depth=9)}
    )
    texts = Texts(told)
    blocks = [texts.block("w", "chat", 0, depth) for _ in range(400)]
    assert all(0 <= b.right <= b.size == depth for b in blocks)
    share = sum(b.right > 0 for b in blocks) / 400
    assert abs(share - rates[0]) < 0.15


def test_a_busy_drafter_serves_what_waits_as_one_batch() -> None:
    """Four verifiers share a drafter that takes longer than a step: while it drafts for one, the
    others come to wait together."""
    slow = Way("remote", {"chat": (0.7,)}, max_depth=4, base_s=0.02)
    told = replace(scenario(clients=16), verifiers=4, ways={"head": slow}, duration_s=1.0)
    world = World(told, GPU, lambda i: Fixed("head", 4, patience_s=0.1))
    account = world.run()
    batches = world.drafting.drafters["head"][0].busy_s / 0.02
    assert batches < 0.6 * account.steps
    assert world.busy_shares()["head"] <= 1.02


def test_a_slower_network_never_brings_more() -> None:
    rates = []
    for rtt_s in (0.0001, 0.002, 0.01):
        told = replace(scenario(clients=2), wire=Wire(rtt_s=rtt_s))
        rates.append(play(told, head()).account.tokens)
    assert rates == sorted(rates, reverse=True)


def test_clients_of_a_phase_that_wants_fewer_stop_asking() -> None:
    told = replace(
        scenario(duration_s=3.0),
        phases=(Phase(0.0, {"chat": 4}), Phase(1.0, {"chat": 0})),
    )
    account = play(told, Standard()).account
    assert account.finished == account.arrived
    assert account.bins[-1].tokens == 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"phases": (Phase(0.0, {"poem": 1}),)}, "unknown cohort poem; known: chat"),
        ({"faults": (Fault("medusa", "dead"),)}, "unknown way medusa; known: head, suffix"),
        ({"phases": ()}, "needs a phase"),
        ({"duration_s": 0.0}, "lasts"),
    ],
)
def test_a_scenario_that_contradicts_itself_is_refused(
    change: dict[str, object], message: str
) -> None:
    with pytest.raises(ScenarioError, match=message):
        replace(scenario(), **change)  # type: ignore[arg-type]


def test_chances_outside_zero_to_one_are_refused() -> None:
    with pytest.raises(ScenarioError, match="chances"):
        Way("remote", {"chat": (1.2,)})
    with pytest.raises(ScenarioError, match="first position"):
        Way("remote", {"chat": ()})
