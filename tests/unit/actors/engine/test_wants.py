"""What an engine says of its load, and which drafters its requests want."""

from __future__ import annotations

from actors.engine.core import Engine
from actors.engine.load import load
from actors.engine.sequence import EngineRequest
from actors.engine.steering import steered
from actors.engine.wants import Wants
from actors.sampling.params import SamplingParams
from pilotfish.v1 import control_pb2 as control
from policies.choice import Arm
from policies.estimate_cost import Sample
from tests.law.harness import make_engine
from tests.models import make_rand

DEPTH = 4
COSTS = [Sample(1, 0.010), Sample(8, 0.012), Sample(64, 0.040)]
AWAY = Arm("eagle3", True, DEPTH)


def engine(*, steer: bool = False, seqs: int = 4) -> Engine:
    """Its newest snapshot says that nobody drafts."""
    made = make_engine(make_rand(), max_rows=64, max_num_seqs=seqs)
    fallback = control.CohortPlan(depth=0, reason="no-drafter")
    made.plan.update(control.PolicySnapshot(term=1, version=1, fallback=fallback))
    if steer:
        made.speculation, made.steering = steered(COSTS, "coupled", DEPTH, "v")
    return made


def add(made: Engine, name: str = "a", wish: int | None = None, prompt: int = 3) -> None:
    ids = tuple(range(1, 1 + prompt))
    made.add(EngineRequest(name, ids, SamplingParams(max_tokens=20), max_draft_len=wish))


def test_requests_that_nobody_drafts_for_want_the_drafters_that_are_configured() -> None:
    wants, made = Wants(["suffix", ""], DEPTH), engine()
    assert wants.now(made) == {}
    add(made)
    assert wants.now(made) == {"suffix": "used", "": "used"}


def test_a_client_that_wants_no_drafts_wants_no_drafters() -> None:
    made = engine()
    add(made, wish=0)
    assert Wants(["suffix"], DEPTH).now(made) == {}


def test_where_speculation_is_off_nobody_is_wanted() -> None:
    made = engine()
    off = control.CohortPlan(depth=0, reason="off")
    made.plan.update(control.PolicySnapshot(term=1, version=2, fallback=off))
    add(made)
    assert Wants(["suffix"], DEPTH).now(made) == {}


def test_a_policy_wants_to_look_at_what_it_does_not_know_while_its_requests_write() -> None:
    wants, made = Wants(["eagle3"], DEPTH), engine(steer=True)
    add(made)
    assert wants.now(made) == {}
    made.step()
    made.step()
    assert wants.now(made) == {"eagle3": "due"}


def test_load_is_what_waits_and_what_plain_steps_take() -> None:
    made = engine(steer=True, seqs=1)
    for name in ("a", "b", "c"):
        add(made, name, prompt=10)
    made.step()
    said = load(made)
    assert said["waiting_tokens"] == 20
    steps = dict(said["standard_steps"])
    assert sorted(steps) == [1, 2, 4, 8, 16, 32, 64]
    assert steps[1] == 0.010
    assert steps[64] == 0.040


def test_an_engine_that_has_measured_nothing_says_nothing_of_its_steps() -> None:
    assert load(engine())["standard_steps"] == []


def test_what_is_known_of_an_arm_is_looked_for_by_its_configured_name() -> None:
    wants = Wants(["eagle3", ""], DEPTH)
    mine = Arm("mine", True, 7)
    assert wants._arm("eagle3", [mine, AWAY]) == AWAY
    assert wants._arm("", [AWAY, mine]) == mine
    assert wants._arm("", [AWAY, Arm("suffix", False, 4)]) == Arm("", True, DEPTH)
