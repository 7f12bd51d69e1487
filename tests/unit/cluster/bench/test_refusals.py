"""What did not happen is not reported, and what was seen before is not passed off as new."""

from __future__ import annotations

from dataclasses import replace

import pytest
from rich.console import Console

from cluster.bench.account import account
from cluster.bench.attempt import Asking, Attempt, measure, warm
from cluster.bench.legs import Leg
from cluster.bench.loads import Load
from cluster.bench.schedule import Cell, Setting, schedule
from cluster.bench.servers import Server
from cluster.bench.session import bar, measure_all
from cluster.bench.watch import refusal
from cluster.sighting import Sighting
from tests.unit.cluster.bench.fakes import (
    COLOCATED,
    REMOTE,
    SETTING,
    STANDARD,
    FakeDoor,
    make_attempt,
    make_prompt,
    make_sample,
)

BEFORE = Sighting((1,), (2,), links_up=1, received=5)
AFTER = replace(BEFORE, received=9)
DRAFTED = make_sample([(1.0, 1, 0), (2.0, 3, 2)])
UNDRAFTED = make_sample([(1.0, 1, 0), (2.0, 1, 0)], reasons=("late",))


def test_a_leg_whose_drafter_drafted_is_reported() -> None:
    assert refusal(REMOTE, BEFORE, AFTER, [DRAFTED]) is None
    assert refusal(STANDARD, BEFORE, BEFORE, [UNDRAFTED]) is None
    chosen = replace(UNDRAFTED, reasons=("limit", "no-gain"))  # blocks came and did not pay
    assert refusal(REMOTE, BEFORE, AFTER, [chosen]) is None
    local = replace(DRAFTED, remote_accepted=0)
    assert refusal(COLOCATED, Sighting((1,)), Sighting((1,)), [local]) is None


@pytest.mark.parametrize(
    ("leg", "before", "after", "sample", "words"),
    [
        (
            REMOTE,
            replace(BEFORE, drafter_pids=()),
            AFTER,
            DRAFTED,
            "no drafter was registered before",
        ),
        (
            REMOTE,
            BEFORE,
            replace(AFTER, drafter_pids=()),
            DRAFTED,
            "no drafter was registered after",
        ),
        (REMOTE, replace(BEFORE, links_up=0), AFTER, DRAFTED, "no verifier was connected"),
        (REMOTE, BEFORE, replace(AFTER, drafter_pids=(3,)), DRAFTED, "pid 2 became 3"),
        (REMOTE, BEFORE, BEFORE, DRAFTED, "no frame came from a drafter"),
        (REMOTE, BEFORE, AFTER, UNDRAFTED, "nothing was drafted (late)"),
        (REMOTE, BEFORE, AFTER, replace(DRAFTED, remote_accepted=1), "did not come over the wire"),
        (COLOCATED, BEFORE, AFTER, DRAFTED, "came over the wire to a co-located leg"),
        (COLOCATED, BEFORE, AFTER, UNDRAFTED, "nothing was drafted"),
        (STANDARD, BEFORE, AFTER, DRAFTED, "standard decode verified 3 drafted tokens"),
        (
            STANDARD,
            BEFORE,
            replace(AFTER, verifier_pids=(9,)),
            UNDRAFTED,
            "a verifier was replaced",
        ),
        (STANDARD, BEFORE, AFTER, make_sample([], error="X: gone"), "no request was answered: X"),
    ],
)
def test_a_leg_that_did_not_happen_is_refused_with_what_was_seen(
    leg: Leg, before: Sighting, after: Sighting, sample: object, words: str
) -> None:
    reason = refusal(leg, before, after, [sample])
    assert reason is not None
    assert words in reason


def servers(*legs: Leg, keeps: bool = False) -> dict[Leg, Server]:
    return {leg: Server(leg.server, (leg,), "", None, 1, keeps) for leg in legs}


def test_one_refused_run_refuses_its_leg_and_leaves_the_others() -> None:
    attempts = [
        make_attempt(STANDARD, [UNDRAFTED]),
        make_attempt(REMOTE, [DRAFTED]),
        make_attempt(REMOTE, [DRAFTED], run=1, refused="the drafter was lost"),
        make_attempt(COLOCATED, [DRAFTED]),
    ]
    figures, refused = account(attempts, servers(STANDARD, REMOTE, COLOCATED))
    assert [f.leg for f in figures] == ["standard", COLOCATED.name]
    assert [(r.leg, r.run, r.reason) for r in refused] == [(REMOTE.name, 1, "the drafter was lost")]


def test_without_standard_decode_nothing_is_reported() -> None:
    attempts = [
        make_attempt(REMOTE, [DRAFTED]),
        make_attempt(STANDARD, [UNDRAFTED], refused="no request was answered"),
    ]
    figures, refused = account(attempts, servers(STANDARD, REMOTE))
    assert figures == ()
    assert {r.leg for r in refused} == {"standard", REMOTE.name}


# -------------------------------------------------------------------------------- cells


def make_cell(leg: Leg, count: int = 1) -> Cell:
    return Cell(leg, SETTING, 0, tuple(make_prompt(str(i)) for i in range(count)), seed=4)


async def test_a_cell_is_measured_with_the_bound_on_d_of_its_leg() -> None:
    door = FakeDoor(first_accepts=2)
    attempt = await measure(make_cell(REMOTE, 2), door, Asking(9), 0, clock=door.clock)
    assert attempt.refused is None
    assert [options["speculative_n_max"] for _, options in door.asked] == [4, 4]
    assert [s.tokens for s in attempt.samples] == [9, 9]
    assert attempt.wall_s == door.now_s


async def test_legs_of_a_run_sample_by_the_same_seeds_and_other_runs_by_others() -> None:
    seeds = []
    for cell in (
        make_cell(REMOTE, 2),
        make_cell(STANDARD, 2),
        replace(make_cell(REMOTE, 2), seed=5),
    ):
        door = FakeDoor()
        await measure(cell, door, Asking(9), 0, clock=door.clock)
        seeds.append([options["seed"] for _, options in door.asked])
    assert seeds[0] == seeds[1]
    assert len({*seeds[0], *seeds[2]}) == 4


async def test_a_server_that_is_away_gives_a_refused_cell_and_no_exception() -> None:
    attempt = await measure(make_cell(STANDARD), FakeDoor(fail=True), Asking(9), 0)
    assert attempt.refused is not None
    assert "UnavailableError: gone" in attempt.refused


async def test_the_warm_up_asks_alone_and_together_and_never_the_workload() -> None:
    door = FakeDoor()
    await warm(door, [STANDARD, REMOTE], clients=3, rounds=2, clock=door.clock)
    assert len(door.asked) == 2 * (2 + 3)
    assert {options["speculative_n_max"] for _, options in door.asked} == {0, 4}
    await warm(door, [STANDARD], clients=3, rounds=0, clock=door.clock)
    assert len(door.asked) == 10


# ------------------------------------------------------------------ repeated prompts (S58)


async def replaying(prompts: list[str], runs: int, *, keeps: bool) -> list[Attempt]:
    """Attempts at servers whose drafter replays its former answer to a prompt it knows."""
    legs = (STANDARD, REMOTE)
    cells = schedule(
        legs,
        [Setting(0.0, Load(clients=1))],
        dataset=[make_prompt(text) for text in prompts],
        prompts=1,
        runs=runs,
        seed=0,
    )
    doors = {leg.server: FakeDoor() for leg in legs}
    with bar(Console(quiet=True)) as progress:
        return await measure_all(
            cells,
            doors,
            {leg: leg.server for leg in legs},
            Asking(9),
            clients=1,
            warmup=0,
            progress=progress,
            clock=lambda: sum(door.now_s for door in doors.values()),
        )


async def test_a_replayed_answer_never_makes_a_headline() -> None:
    attempts = await replaying(["same"], 5, keeps=True)
    figures, _ = account(attempts, servers(STANDARD, REMOTE, keeps=True))
    remote = next(f for f in figures if f.leg == REMOTE.name)
    assert remote.acceptance_length == 1.0  # the cold first pass, alone
    assert [run.run for run in remote.runs] == [0]
    assert remote.replayed_runs == 4
    assert remote.replayed_acceptance_length == 4.0
    assert remote.ratio_decode is not None
    assert remote.ratio_decode.value == 1.0


async def test_distinct_prompts_are_all_reported_and_none_is_marked() -> None:
    attempts = await replaying(["a", "b", "c", "d", "e"], 5, keeps=True)
    figures, _ = account(attempts, servers(STANDARD, REMOTE, keeps=True))
    remote = next(f for f in figures if f.leg == REMOTE.name)
    assert (len(remote.runs), remote.replayed_runs, remote.repeated) == (5, 0, 0)
    assert remote.acceptance_length == 1.0


async def test_repeats_of_a_server_that_keeps_nothing_count_and_are_marked() -> None:
    attempts = await replaying(["same"], 5, keeps=False)
    figures, _ = account(attempts, servers(STANDARD, REMOTE, keeps=False))
    remote = next(f for f in figures if f.leg == REMOTE.name)
    assert (len(remote.runs), remote.replayed_runs, remote.repeated) == (5, 0, 4)
