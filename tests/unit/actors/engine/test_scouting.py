"""Whose text is read for evidence alone: what the account bears, and no more (law L4)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from actors.contracts import Draft, Gathered
from actors.engine.scouting import Scouting
from policies.choice import Arm
from policies.choice_records import Shadow

HERE, ELSEWHERE = Arm("eagle3", False, read_s=0.000125), Arm("eagle3", True)


@dataclass
class Text:
    request_id: str
    tokens: list[int]


def texts(*lengths: int) -> list[Any]:
    return [Text(str(i), [0] * length) for i, length in enumerate(lengths)]


def chosen(scouting: Scouting, able: list[Any], saved_s: float, arm: Arm = HERE) -> list[str]:
    shadow = Shadow("default", arm, 4, 4)
    found = scouting.choose(able, shadow, lambda seconds: seconds <= saved_s)
    return [seq.request_id for seq in found]


@pytest.mark.parametrize(("saved_s", "reads"), [(0.1, ["0"]), (0.09, [])])
def test_the_first_text_is_read_when_the_account_bears_it(saved_s: float, reads: list[str]) -> None:
    able = texts(800)
    assert chosen(Scouting(), able, saved_s + 1e-9) == reads


def test_a_short_text_that_comes_later_is_read_before_a_long_one() -> None:
    scouting = Scouting()
    assert chosen(scouting, texts(800), 0.01) == []
    assert chosen(scouting, texts(800, 64), 0.01) == ["1"]
    # It is known from now on, and costs nothing more.
    assert chosen(scouting, texts(800, 64), 0.0) == ["1"]


def test_a_text_read_elsewhere_takes_nothing_here() -> None:
    assert chosen(Scouting(), texts(8000), 0.0, ELSEWHERE) == ["0"]


def test_what_reading_took_is_its_price_from_then_on() -> None:
    scouting = Scouting()
    assert chosen(scouting, texts(100), 1.0) == ["0"]
    gathered = Gathered(shadows={"0": (HERE, Draft((1,), "eagle3", False, 2000))})
    shadow = Shadow("default", HERE, 4, 4)
    beyond_s = scouting.beyond_s(shadow, 0.003, 0.05, frozenset(), gathered)
    assert beyond_s == pytest.approx(0.05 + 0.002 - 0.003)
    scouting.forget("0")
    assert chosen(scouting, texts(100), 0.049) == []
    assert chosen(scouting, texts(100), 0.051) == ["0"]


def test_a_block_that_comes_out_empty_has_taken_its_time() -> None:
    """A drafter that is slow and of no use costs what it costs (law L4)."""
    scouting, shadow = Scouting(), Shadow("default", HERE, 4, 4)
    empty = Gathered(waited_s=0.03, judged={"0": (HERE, 0, 0)})
    assert scouting.beyond_s(shadow, 0.01, 0.0, frozenset(), empty) == pytest.approx(0.02)
    other = Arm("suffix", False)
    drafts = {"1": Draft((1,), "suffix", False, 12_000)}
    beside = Gathered(drafts, waited_s=0.03, judged={"0": (HERE, 0, 0)})
    found = scouting.beyond_s(shadow, 0.01, 0.0, frozenset({other}), beside)
    assert found == pytest.approx(0.03 - 0.012 - 0.01)
    remote = frozenset({ELSEWHERE})
    assert scouting.beyond_s(shadow, 0.01, 0.0, remote, empty) == pytest.approx(-0.01)


def test_a_shadow_that_came_to_nothing_says_what_it_would_have_taken() -> None:
    scouting = Scouting()
    assert chosen(scouting, texts(800, 400), 0.04) == []
    assert scouting.refused_s == {HERE: pytest.approx(0.05)}
    able = texts(800, 400, 64)
    assert chosen(scouting, able, 0.04) == ["2"]
    scouting.refused_s.clear()
    assert chosen(scouting, able, 0.04) == ["2"]  # one that it knows is asked alone
    assert scouting.refused_s == {}
