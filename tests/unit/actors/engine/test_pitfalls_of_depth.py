"""Pitfalls S47 and S48 in the engine: standard decode is the plain path, and what one request asked
for or met does not reach the next. What the policy makes of them is held in `policies`."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from actors.drafters.config import DrafterConfig
from actors.engine.options import EngineOptions
from actors.engine.service import EngineService
from tests.drafters.anti import AntiDrafter
from tests.drafters.base import NextToken
from tests.drafters.oracle import OracleDrafter
from tests.law.harness import events_of, make_engine, request, run
from tests.models import SUCC_VOCAB, make_succ, save_tiny

PROMPT = (3, 4)


def successor(prefix: Any, _: Any) -> int:
    return int(prefix[-1] + 1) % SUCC_VOCAB


RIGHT: NextToken = successor


@pytest.mark.parametrize(("depth", "wish"), [(0, None), (4, 0)])
def test_standard_decode_asks_no_drafter_for_anything_and_takes_the_plain_steps(
    depth: int, wish: int | None
) -> None:
    """S47: whether D = 0 is the server's or the client's."""
    drafter = OracleDrafter(RIGHT, SUCC_VOCAB)
    engine = make_engine(make_succ(), drafter, depth=depth)
    alone = make_engine(make_succ())
    wished = request("r", PROMPT, max_draft_len=wish)
    assert run(engine, wished) == run(alone, request("r", PROMPT))
    assert drafter.calls == 0
    figures = ("steps", "rounds", "drafted", "tokens", "prefill_tokens")
    assert [getattr(engine.stats, f) for f in figures] == [getattr(alone.stats, f) for f in figures]


@pytest.mark.parametrize("wish", [0, 1, 3])
def test_the_wish_of_one_request_bounds_itself_alone(wish: int) -> None:
    """S48, before it, after it and beside it."""
    engine = make_engine(make_succ(), OracleDrafter(RIGHT, SUCC_VOCAB), depth=4)
    first = events_of(engine, request("first", PROMPT, max_draft_len=wish))
    both = events_of(engine, request("second", PROMPT), request("third", (7,), max_draft_len=wish))
    most = {
        name: max(event.drafted for event in (*first, *both) if event.request_id == name)
        for name in ("first", "second", "third")
    }
    assert most == {"first": wish, "second": 4, "third": wish}


def test_after_a_request_whose_drafts_were_all_wrong_the_next_starts_at_the_configured_depth() -> (
    None
):
    """S48, where D is configured and no policy adapts it."""
    engine = make_engine(make_succ(), AntiDrafter(RIGHT, SUCC_VOCAB), depth=4)
    events_of(engine, request("first", PROMPT))
    assert engine.stats.accepted == 0
    second = [event.drafted for event in events_of(engine, request("second", PROMPT))]
    assert second[:2] == [0, 4]  # the prompt's token, then a round


def test_serving_changes_nothing_of_what_the_caller_configured(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """S48: a depth that was learnt is never written into the user's own configuration."""
    path = save_tiny(make_succ(), tmp_path_factory.mktemp("succ"))
    options = EngineOptions(
        model_path=path,
        verifier_id="v",
        dtype="float64",
        max_model_len=64,
        enforce_eager=True,
        placement="colocated",
        depth=4,
        adaptive=True,
        speculative=DrafterConfig(
            method="custom_class",
            model="tests.drafters.exact_k:ExactKDrafter",
            options={"model": path, "k": 1},
        ),
    )
    before = copy.deepcopy(options)
    service = EngineService(options)
    try:
        run(service.thread.engine, request("r", PROMPT))
    finally:
        service.port.shutdown()
    assert options == before
