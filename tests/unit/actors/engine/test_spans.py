"""A round's span says what was decided for it, and why."""

from __future__ import annotations

from typing import Any

from actors.engine.events import TokenEvent
from actors.engine.spans import emit_spans

TRACE = ("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "")


def spans(*events: TokenEvent) -> list[tuple[str, int, int, dict[str, Any]]]:
    found: list[tuple[str, int, int, dict[str, Any]]] = []
    emit_spans(events, lambda _, name, start, end, of: found.append((name, start, end, of)))
    return found


def test_a_drafted_round_says_depth_mechanism_placement_and_reason() -> None:
    event = TokenEvent(
        "r", (1, 2, 3), drafted=4, accepted=2, mechanism="suffix", remote=True, reason="held",
        trace=TRACE, started_ns=5, ended_ns=9,
    )  # fmt: skip
    ((name, start, end, attributes),) = spans(event)
    assert (name, start, end) == ("round", 5, 9)
    assert attributes == {
        "pilotfish.draft.depth": 4,
        "pilotfish.draft.accepted": 2,
        "pilotfish.draft.mechanism": "suffix",
        "pilotfish.draft.remote": True,
        "pilotfish.draft.reason": "held",
        "pilotfish.round.tokens": 3,
    }


def test_a_round_of_standard_decode_says_why() -> None:
    ((_, _, _, attributes),) = spans(TokenEvent("r", (1,), reason="slower", trace=TRACE))
    assert attributes["pilotfish.draft.depth"] == 0
    assert attributes["pilotfish.draft.mechanism"] == "none"
    assert attributes["pilotfish.draft.reason"] == "slower"


def test_a_request_that_nobody_traces_makes_no_span() -> None:
    assert spans(TokenEvent("r", (1,), reason="gain")) == []
