"""What drafters are told, and when they are left alone."""

from __future__ import annotations

from typing import Any

from actors.contracts import Draft, Gathered, PortCommit
from actors.engine.core import Engine
from actors.engine.noport import NoDrafts
from actors.engine.sessions import MOST_UNTOLD, SCOUTS
from actors.engine.speculation import HOPE, JUDGE_EVERY, Speculation
from actors.sampling.params import SamplingParams
from policies.acceptance import verified
from policies.cost import profiled
from tests.law.harness import make_engine, plain, request
from tests.models import make_rand

FREE = profiled([(1, 1.0)])
CHEAP = profiled([(1, 1.0), (65, 10.6)])
DEAR = profiled([(1, 1.0), (65, 65.0)])
LONG = SamplingParams(temperature=0.0, max_tokens=80)
MODEL = make_rand()


class Recorder(NoDrafts):
    """A port that drafts nonsense and remembers what it is told."""

    def __init__(self) -> None:
        self.known: dict[str, list[int]] = {}
        self.ended: dict[str, tuple[str, list[int]]] = {}
        self.messages = 0

    def open(self, view: Any) -> None:
        self.known[view.request_id] = list(view.tokens)

    def commit(self, commits: Any) -> None:
        for commit in commits:
            assert isinstance(commit, PortCommit)
            assert len(self.known[commit.request_id]) == commit.from_len
            self.known[commit.request_id] += commit.tokens
            self.messages += 1

    def gather(self, wanted: dict[str, int], worth_s: Any) -> Gathered:
        return Gathered({r: Draft((0,) * d, "nonsense", False) for r, d in wanted.items()})

    def close(self, request_id: str, reason: str) -> None:
        self.ended[request_id] = (reason, self.known.pop(request_id))


def engine_with(cost: Any) -> tuple[Engine, Recorder]:
    port = Recorder()
    engine = make_engine(MODEL, port=port, depth=4)
    engine.speculation = Speculation(cost)
    engine.speculation.observe = lambda rows, took_s: None  # type: ignore[method-assign]
    return engine, port


def run(engine: Engine, count: int, sampling: SamplingParams = LONG) -> None:
    for i in range(count):
        engine.add(request(str(i), [5, i, 7], sampling))
    while engine.has_work:
        engine.step()


def test_a_drafter_in_vain_is_told_less_often_and_of_everything_in_the_end() -> None:
    engine, port = engine_with(CHEAP)
    run(engine, 1)
    whole = [5, 0, 7, *plain(MODEL, [5, 0, 7], LONG)]
    assert port.ended["0"] == ("length", whole)
    assert 4 < port.messages < 40


def test_an_aborted_request_is_closed_as_it_is() -> None:
    engine, port = engine_with(FREE)
    engine.add(request("0", [5, 0, 7], LONG))
    for _ in range(20):
        engine.step()
    told = list(port.known["0"])
    engine.abort("0")
    assert port.ended["0"] == ("abort", told)


def test_without_an_ask_a_drafter_is_told_before_the_news_grow_long() -> None:
    engine, port = engine_with(FREE)
    assert engine.speculation is not None
    engine.speculation.ask = lambda request_id, depth: 0  # type: ignore[method-assign]
    engine.max_model_len = 10**6
    run(engine, 1, SamplingParams(temperature=0.0, max_tokens=MOST_UNTOLD + 20, ignore_eos=True))
    assert port.messages == 2


def test_in_a_batch_too_large_to_gain_only_scouts_keep_their_sessions() -> None:
    engine, port = engine_with(DEAR)
    for i in range(SCOUTS + 2):
        engine.add(request(str(i), [5, i, 7], LONG))
    engine.step()
    assert port.known.keys() == {"0", str(SCOUTS)}
    assert port.ended == {}


def test_sessions_are_closed_when_a_batch_becomes_too_large_and_come_back() -> None:
    engine, port = engine_with(DEAR)
    engine.add(request("0", [5, 0, 7], LONG))
    engine.step()
    engine.add(request("1", [5, 1, 7], LONG))
    assert engine.speculation is not None
    engine.speculation.cost = FREE
    engine.step()
    assert port.known.keys() == {"0", "1"}
    engine.speculation.cost = DEAR
    for _ in range(JUDGE_EVERY + 1):
        engine.step()
    assert port.known.keys() == {"0"}
    assert port.ended["1"][0] == "no-gain"
    engine.speculation.cost = FREE
    for _ in range(JUDGE_EVERY + 1):
        engine.step()
    assert port.known["1"] == engine.sequences["1"].tokens[: len(port.known["1"])]
    assert len(port.known["1"]) > 15


def test_a_client_that_wants_no_drafts_has_no_session_in_any_batch() -> None:
    engine, port = engine_with(FREE)
    engine.add(request("0", [5, 0, 7], LONG, max_draft_len=0))
    for _ in range(JUDGE_EVERY * 2):
        engine.step()
    assert port.known == {}


def test_one_client_is_never_hopeless_and_good_news_bring_hope() -> None:
    speculation = Speculation(DEAR)
    assert not speculation.hopeless(1, 4)
    assert speculation.hopeless(2, 4)
    slope = profiled([(1, 1.0), (65, 1.0 + 64 * 0.3)])
    doubtful = Speculation(slope)
    assert HOPE < 0.95
    assert doubtful.hopeless(16, 4)
    everyone = doubtful._of("")
    for _ in range(400):
        everyone.acceptance = verified(everyone.acceptance, 4, 4)
    assert not doubtful.hopeless(17, 4)
