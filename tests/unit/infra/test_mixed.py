"""The figures of a cohort of many kinds of text are of pairs, a request each."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.infra.scripts import INFRA, importable, module


@pytest.fixture(scope="module", autouse=True)
def on_the_path() -> Iterator[None]:
    with importable(INFRA / "bench"):
        yield


@pytest.mark.parametrize(
    ("name", "depth", "fixed"), [("eagle3:3", 3, False), ("suffix:12!", 12, True)]
)
def test_a_leg_says_whether_it_always_drafts(name: str, depth: int, fixed: bool) -> None:
    leg = module("mixed").leg_of(name)
    assert (leg.methods, leg.depth, leg.fixed) == ((name.partition(":")[0],), depth, fixed)


def test_a_leg_is_compared_with_standard_decode_request_by_request() -> None:
    mixed = module("mixed")

    def each(factor: float, drafted: int) -> list[object]:
        """Six requests, of which the second three take ten times as long."""
        return [
            mixed.Written((1,) * 64, factor * took, factor * took / 2, 63, drafted, drafted // 2)
            for took in (1.0, 2.0, 4.0, 10.0, 20.0, 40.0)
        ]

    legs = [mixed.Leg("standard", (), 0), mixed.leg_of("suffix:4")]
    options = argparse.Namespace(
        prompts=Path("p.jsonl"), rounds=2, tokens=64, legs=["suffix:4"], model="smollm2"
    )
    *_, standard, suffix = mixed.report(options, legs, [each(1.0, 0), each(0.8, 10)]).splitlines()
    assert standard.startswith("| standard | 5.0 | 1.000 [1.000, 1.000] |")
    same = "1.250 [1.250, 1.250]"
    assert suffix == f"| suffix:4 | 6.2 | {same} | {same} | {same} | 60 | 30 |"
