"""The policy in the engine's seat, with a real engine: what requests get of its plans."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from actors.contracts import Gathered
from actors.engine.core import Engine, drain
from actors.engine.steering import steered
from actors.sampling.params import SamplingParams
from actors.sampling.rules import Rule
from policies import estimate_cost
from policies.choice import Arm, Group
from policies.choice_reasons import MEANING
from policies.choice_records import Decision, Moment, Outcome, Plan, Shadow
from policies.control import Windows
from policies.estimate_cost import Sample
from tests.drafters.oracle import OracleDrafter
from tests.law.harness import assert_pools_full, make_engine, plain, request
from tests.models import make_rand

FREE = [Sample(1, 1.0), Sample(65, 1.001)]
MODEL = make_rand()
PROMPT = [5, 9, 7] * 6
LONG = SamplingParams(temperature=0.0, max_tokens=160, ignore_eos=True)


def engine_with(rule: Rule = "coupled", depth: int = 4, max_rows: int = 512) -> Engine:
    """On a clock on which each forward takes a second and each block a millisecond, so that what is
    decided is the same on every machine."""
    engine = make_engine(
        MODEL, OracleDrafter(model=MODEL), depth=depth, rule=rule, max_rows=max_rows
    )
    engine.speculation, engine.steering = steered(FREE, rule, depth, "verifier")
    steering, port = engine.steering, engine.port
    learn, heard, gather = steering.learn, steering.heard, port.gather

    def learn_timed(*args: Any, **keywords: Any) -> None:
        learn(*args, **{**keywords, "forward_s": 1.0, "step_s": 1.0})

    def gather_timed(wanted: dict[str, int], worth_s: Mapping[str, float]) -> Gathered:
        came = gather(wanted, worth_s)
        drafts = {r: replace(draft, draft_us=1000) for r, draft in came.drafts.items()}
        shadows = {r: (a, replace(d, draft_us=1000)) for r, (a, d) in came.shadows.items()}
        return replace(came, drafts=drafts, shadows=shadows, waited_s=0.001)

    steering.learn = learn_timed  # type: ignore[method-assign]
    steering.heard = lambda gathered, _: heard(gathered, 0.001)  # type: ignore[method-assign]
    port.gather = gather_timed  # type: ignore[method-assign]
    return engine


def test_texts_are_those_of_standard_decode_through_windows_and_shadows() -> None:
    engine = engine_with(depth=1)  # so that a window is due before the texts have ended
    for name in ("a", "b"):
        engine.add(request(name, PROMPT, LONG, cohort=name))
    texts: dict[str, list[int]] = {"a": [], "b": []}
    reasons: Counter[str] = Counter()
    for event in drain(engine):
        texts[event.request_id].extend(event.tokens)
        reasons[event.reason] += 1
    assert texts["a"] == texts["b"] == plain(MODEL, PROMPT, LONG)
    assert reasons["control"] > 0
    assert engine.stats.accepted > 0
    assert_pools_full(engine)


def test_nothing_of_a_request_stays_when_it_has_ended() -> None:
    engine = engine_with()
    engine.add(request("ended", PROMPT, LONG))
    engine.add(request("aborted", PROMPT, LONG))
    for _ in range(40):
        engine.step()
    engine.abort("aborted")
    for _ in drain(engine):
        pass
    assert engine.steering is not None
    assert engine.speculation is not None
    assert len(engine.speculation) == 0
    assert engine.steering._cohorts == {}


def test_a_prompt_that_is_read_but_for_its_last_token_drafts_no_shadow() -> None:
    """It is due to write like those that do, but has written nothing to draft from."""
    engine = engine_with(max_rows=32)
    steering = engine.steering
    assert steering is not None
    decide = steering.policy.decide

    def shadowed(moment: Moment) -> Decision:
        arm = Arm("oracle", remote=False, max_depth=4)
        return replace(decide(moment), shadow=Shadow("default", arm, 4, rows=8))

    steering.policy.decide = shadowed  # type: ignore[method-assign]
    engine.add(request("a", PROMPT, LONG))
    for _ in range(4):
        engine.step()
    prompt = [3, *range(40, 71)]  # as many tokens as a step has rows
    engine.add(request("b", prompt, LONG))
    assert [event.request_id for event in engine.step()] == ["a"]  # the other rows are b's
    assert {seq.request_id: seq.pending for seq in engine.scheduler.running} == {"a": 1, "b": 1}
    texts: dict[str, list[int]] = {"b": []}
    for event in drain(engine):
        texts.setdefault(event.request_id, []).extend(event.tokens)
    assert texts["b"] == plain(MODEL, prompt, LONG)


@pytest.mark.parametrize("wish", [0, 1, 3])
def test_a_client_gets_no_longer_blocks_than_it_wished_for(wish: int) -> None:
    engine = engine_with()
    engine.add(request("r", PROMPT, LONG, max_draft_len=wish))
    drafted = [event.drafted for event in drain(engine)]
    assert max(drafted) == wish


def test_a_step_is_priced_by_the_context_of_those_who_write() -> None:
    engine = engine_with()
    sliding = [Sample(1, 1.0, context=64), Sample(1, 1.5, context=564), Sample(65, 1.0, context=64)]
    engine.speculation, engine.steering = steered(sliding, "coupled", 4, "verifier")
    for name in ("a", "b"):
        engine.add(request(name, PROMPT, LONG))
    for _ in range(6):
        engine.step()
    length = sum(len(seq.tokens) for seq in engine.scheduler.running)
    moment = engine.steering.moment
    assert moment is not None
    since = engine.steering._step - moment.step  # steps of two tokens that were like it
    assert moment.context + 2 * since == length
    stairs_s = 1.0 - 64 * 0.001
    assert engine.steering.policy.state.step_cost.token_s == pytest.approx(0.001)
    engine.steering.policy.state = replace(
        engine.steering.policy.state, step_cost=estimate_cost.profiled(sliding)
    )
    assert engine.steering.step_s(1) == pytest.approx(stairs_s + 0.001 * moment.context)


def test_without_any_evidence_nothing_is_verified() -> None:
    """The first blocks are scored against what the target writes, and seen by nobody."""
    engine = engine_with()
    engine.add(request("r", PROMPT, LONG))
    early = [event for _ in range(4) for event in engine.step()]
    assert [event.drafted for event in early] == [0] * len(early)
    assert {event.reason for event in early} <= {"prefill", "no-evidence", "empty"}


def test_what_is_counted_of_decisions_has_reasons_of_the_vocabulary_alone() -> None:
    engine = engine_with()
    engine.add(request("r", PROMPT, LONG))
    steps = sum(1 for event in drain(engine) if not event.first and event.finish is None)
    assert engine.steering is not None
    decisions = engine.steering.figures.decisions
    assert {reason for *_, reason in decisions} <= set(MEANING)
    assert sum(decisions.values()) == pytest.approx(steps, abs=2)


def test_d_zero_in_the_configuration_means_off() -> None:
    engine = engine_with(depth=0)
    engine.add(request("r", PROMPT, LONG))
    for event in drain(engine):
        assert event.drafted == 0
    assert engine.steering is not None
    assert {reason for *_, reason in engine.steering.figures.decisions} <= {"off", "control"}


def test_steps_in_which_nobody_is_asked_are_decided_once_for_a_stretch() -> None:
    """And counted, learnt from and written as if each had been decided by itself."""
    engine = engine_with(depth=0)
    steering = engine.steering
    assert steering is not None
    decide, learn, decided, told = steering.policy.decide, steering.policy.learn, [], []
    steering.policy.decide = lambda m: decided.append(m) or decide(m)  # type: ignore[method-assign]
    steering.policy.learn = lambda o: told.append(o) or learn(o)  # type: ignore[method-assign]
    steering.learn = type(steering).learn.__get__(steering)  # type: ignore[method-assign]
    for name in ("a", "b"):
        engine.add(request(name, PROMPT, LONG))
    texts: dict[str, list[int]] = {"a": [], "b": []}
    for event in drain(engine):
        texts[event.request_id].extend(event.tokens)
    assert texts["a"] == texts["b"] == plain(MODEL, PROMPT, LONG)
    steps = LONG.max_tokens - 1
    assert len(decided) < steps / 4
    counted = steering.figures.decisions.total()
    assert counted == pytest.approx(2 * steps, abs=4)
    assert sum(outcome.steps for outcome in told) == pytest.approx(steps, abs=16)
    assert sum(sum(o.tokens.values()) for o in told) == 2 * sum(o.steps for o in told)
    assert_pools_full(engine)


def test_what_came_of_a_step_is_told_with_what_was_decided_for_that_step() -> None:
    """Blocks are asked for at the end of the step before, so the next step is decided when a step
    is learnt from. A window of standard decode has the steps in which nobody drafted, and a step's
    blocks are what was asked for it."""
    engine = engine_with()
    steering = engine.steering
    assert steering is not None
    steering.policy.windows = Windows("seed", period=16, steps=4)
    told: list[Outcome] = []
    learn = steering.policy.learn
    steering.policy.learn = lambda o: told.append(o) or learn(o)  # type: ignore[method-assign]
    engine.add(request("r", PROMPT, LONG))
    rows: dict[int, int] = {}
    while engine.has_work:
        step, before = steering._step, engine.stats.drafted
        engine.step()
        rows[step] = engine.stats.drafted - before
    kinds = {step: steering.policy.windows.kind(step) for step in rows}
    assert {rows[step] for step in rows if kinds[step] == "control"} == {0}
    assert len(told) > 10
    for outcome in told:
        assert outcome.decision.kind == kinds[outcome.moment.step]
        assert outcome.rows == outcome.moment.writers + rows[outcome.moment.step]
    drafting = [o for o in told if o.decision.kind == "policy" and rows[o.moment.step]]
    assert drafting


def test_a_change_of_costs_is_counted_for_those_who_write_and_is_no_change_of_texts() -> None:
    _, steering = steered(FREE, "coupled", 4, "verifier")
    groups = (Group("code", 3, 4), Group("chat", 1, 4))
    for step in range(60):
        took = Outcome(Moment(step, groups, ()), Decision({}), 4, 3.0, 3.0, {"code": 3.0})
        steering._learn(took)
    assert steering.policy.state.step_cost.alarms == 1
    assert steering.figures.alarms == {"code": 1, "chat": 1}
    assert steering.policy.state.changed == {}


@pytest.mark.parametrize(("read_s", "asked"), [(0.5, True), (2.0, False)])
def test_a_text_that_takes_too_long_to_read_for_what_is_left_to_write_is_not_drafted_for(
    read_s: float, asked: bool
) -> None:
    """Standard decode would write the rest in 159 s: a tenth of it may go into reading 18 tokens
    and the one that was written."""
    engine = engine_with()
    steering = engine.steering
    assert steering is not None
    arm = replace(engine.port.arms[0], read_s=read_s)
    steering.policy.meet(arm)
    plan = Plan(arm, 4, 4, "gain", (0.9, 0.8, 0.7, 0.6))
    steering.policy.decide = lambda _: Decision({"default": plan})  # type: ignore[method-assign]
    engine.add(request("r", PROMPT, LONG))
    engine.step()
    engine.step()
    seq = engine.sequences["r"]
    assert bool(seq.asked) == asked
    assert seq.depth_reason == ("" if asked else "no-gain")
