"""The quick way to an event writes what the general one writes."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.gateway.answers import Answer, AnswerOptions
from cluster.gateway.chat import ChatAnswer
from cluster.gateway.completions import CompletionAnswer
from cluster.gateway.types import Delta
from tests.unit.cluster.gateway.builders import make_codec, make_spec


def make_answer(kind: type[Answer], **options: object) -> Answer:
    spec = make_spec(request_id='id"\\u0000')
    return kind(spec, make_codec(), 'a "name" \\', 7, AnswerOptions(**options))  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", [ChatAnswer, CompletionAnswer])
@pytest.mark.parametrize("include_usage", [False, True])
@given(text=st.text(min_size=1, max_size=20) | st.sampled_from(["\x00", '"', "\\", "\u2028", "🦈"]))
def test_an_event_of_text_alone_is_the_general_events_bytes(
    kind: type[Answer], include_usage: bool, text: str
) -> None:
    answer, delta = make_answer(kind, include_usage=include_usage), Delta(text, token_ids=(1, 2))
    choice = answer.part(delta)
    assert choice is not None
    quick = answer._delta(delta)
    assert quick == answer._chunk(choice)
    assert json.loads(quick.removeprefix(b"data: "))["choices"][0]


@pytest.mark.parametrize("kind", [ChatAnswer, CompletionAnswer])
@pytest.mark.parametrize(
    "options", [{"token_ids": True}, {"continuous_usage": True}, {"top_logprobs": 0}]
)
def test_what_changes_with_each_event_is_never_left_out(
    kind: type[Answer], options: dict[str, object]
) -> None:
    """Each event holds more than the text here, so none may be written the quick way."""
    answer, other = make_answer(kind, **options), make_answer(kind, **options)
    for tokens in ((1, 2), (3,)):
        delta = Delta("ab", token_ids=tokens, token_texts=("a", "b")[: len(tokens)])
        other._completion_tokens += len(tokens)
        choice = other.part(delta)
        assert choice is not None
        assert answer._delta(delta) == other._chunk(choice)


@pytest.mark.parametrize("kind", [ChatAnswer, CompletionAnswer])
def test_text_that_is_held_back_is_no_event_and_an_end_always_is(kind: type[Answer]) -> None:
    answer = make_answer(kind)
    assert answer._delta(Delta("", token_ids=(1,))) == b""
    assert b'"finish_reason":"stop"' in answer._delta(Delta("", finish="stop"))
    assert b'"finish_reason":"stop"' in answer._delta(Delta("a", finish="stop"))
