"""A long prompt is read in parts by its drafter too; until it has been, its row runs as `cold`."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from actors.engine.core import Engine
from actors.engine.events import TokenEvent
from tests.checkpoints.target import target
from tests.law.harness import GREEDY, assert_pools_full, events_of, make_engine, plain, request
from tests.law.learned import make, over_the_wire

torch.set_num_threads(1)

KINDS = ["EAGLE-3 speculators", "MTP DeepSeek", "z-lab", "DeepSpec vanilla"]
PROMPT = [(5 * i + 2) % 128 for i in range(150)]
PART = 16
"""Rows that a drafter absorbs at a time: it needs several rounds for what the target has read."""
SAMPLING = replace(GREEDY, max_tokens=40)


def rounds(engine: Engine) -> list[TokenEvent]:
    """Of the long prompt, beside a short one that runs; without the first token's."""
    events = events_of(
        engine, request("short", [9, 2, 6], SAMPLING), request("long", PROMPT, SAMPLING)
    )
    text = [t for e in events if e.request_id == "long" for t in e.tokens]
    assert text == plain(target(), PROMPT, SAMPLING)
    return [e for e in events if e.request_id == "long" and e.tokens and not e.first]


def assert_cold_and_then_drafting(events: list[TokenEvent]) -> None:
    warm = next(i for i, e in enumerate(events) if e.drafted)
    assert warm > 1
    assert {e.reason for e in events[:warm]} == {"cold"}
    assert all(len(e.tokens) == 1 for e in events[:warm])
    assert all(e.reason != "cold" for e in events[warm:])


@pytest.mark.parametrize("name", KINDS)
def test_co_located_a_drafter_that_is_still_reading_says_cold_and_drafts_when_it_has_read(
    name: str,
) -> None:
    engine = make_engine(target(), make(name, prefill_rows=PART), max_rows=32)
    assert_cold_and_then_drafting(rounds(engine))
    assert_pools_full(engine)


@pytest.mark.parametrize("name", KINDS)
def test_over_the_wire_a_drafter_that_is_still_reading_says_cold_and_drafts_when_it_has_read(
    name: str,
) -> None:
    with over_the_wire(make(name, prefill_rows=PART)) as (engine, _):
        assert_cold_and_then_drafting(rounds(engine))
        assert_pools_full(engine)
