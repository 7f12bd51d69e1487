"""What the engine tells its port when it gathers: the blocks it wants, and what they are worth."""

from __future__ import annotations

from collections.abc import Mapping

from typing_extensions import override

from actors.contracts import Draft, Gathered
from actors.engine.core import Engine
from actors.engine.noport import NoDrafts
from actors.engine.speculation import Speculation
from actors.sampling.params import SamplingParams
from policies.cost import Cost, profiled
from policies.pace import Pace
from tests.law.harness import make_engine, request
from tests.models import make_rand

FREE = profiled([(1, 1.0)])
DEAR = profiled([(1, 1.0), (65, 65.0)])
LONG = SamplingParams(temperature=0.0, max_tokens=60)
MODEL = make_rand()


class Recorder(NoDrafts):
    """A port that answers as it is told, and remembers what it was asked."""

    def __init__(self) -> None:
        self.calls: list[tuple[dict[str, int], dict[str, float]]] = []
        self.asked: list[int] = []
        self.reason = "late"

    @override
    def commit(self, commits: object) -> None:
        assert isinstance(commits, list)
        self.asked += [commit.depth for commit in commits]

    @override
    def gather(self, wanted: dict[str, int], worth_s: Mapping[str, float]) -> Gathered:
        self.calls.append((dict(wanted), dict(worth_s)))
        if self.reason:
            return Gathered(missing=dict.fromkeys(wanted, self.reason))
        return Gathered({name: Draft((0,) * depth, "any", True) for name, depth in wanted.items()})


def engine_with(cost: Cost | None, count: int = 1) -> tuple[Engine, Recorder]:
    port = Recorder()
    engine = make_engine(MODEL, port=port, depth=4)
    if cost is not None:
        engine.speculation = Speculation(cost)
        engine.speculation.observe = lambda rows, took_s: None  # type: ignore[method-assign]
    for number in range(count):
        engine.add(request(str(number), [5, number, 7], LONG))
    engine.step()
    return engine, port


def test_a_block_that_is_late_is_wanted_in_the_next_round_too_asked_for_or_not() -> None:
    engine, port = engine_with(FREE)
    assert engine.speculation is not None
    engine.speculation.ask = lambda request_id, depth: 0  # type: ignore[method-assign]
    asked = list(port.asked)
    for _ in range(3):
        engine.step()
    assert [wanted for wanted, _ in port.calls[-3:]] == [{"0": 4}] * 3
    assert port.asked == asked  # it is owed, and nobody asks again
    port.reason = "empty"
    engine.step()
    engine.step()
    assert port.calls[-2][0] == {"0": 4}
    assert port.calls[-1][0] == {}


def test_worth_is_named_for_each_wanted_block_and_falls_with_what_came_of_them() -> None:
    engine, port = engine_with(FREE, count=2)
    engine.step()
    wanted, first = port.calls[-1]
    assert first.keys() == wanted.keys() == {"0", "1"}
    assert min(first.values()) > 0.0
    port.reason = "empty"
    for _ in range(12):
        engine.step()
    later = [worth for wanted, worth in port.calls if wanted][-1]
    assert max(later.values()) < 0.5 * min(first.values())


def test_where_rows_cost_what_they_bring_no_block_is_worth_a_wait() -> None:
    engine, port = engine_with(DEAR)
    engine.step()
    assert port.calls[-1] == ({"0": 4}, {"0": 0.0})


def test_a_fixed_length_is_waited_for_by_the_time_of_steps_without_prompts() -> None:
    engine, port = engine_with(None)
    engine.pace = Pace(decode_s=0.0, row_s=1.0)
    engine.step()
    assert port.calls[-1][1] == {"0": 0.0}  # nothing is known of such steps yet
    engine.pace = Pace(decode_s=0.5)
    engine.step()
    short = port.calls[-1][1]["0"]
    engine.pace = Pace(decode_s=1.0)
    engine.step()
    assert 0.0 < short < port.calls[-1][1]["0"]
