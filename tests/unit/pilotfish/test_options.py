"""Laws of the request that a call becomes."""

from __future__ import annotations

from typing import Any

import pytest

from pilotfish._errors import InvalidRequestError
from pilotfish._options import GenerateOptions, generate_request, tokenize_request
from pilotfish._trace import trace_metadata
from pilotfish._types import Delta, Speculation, Usage, joined

PARENT = f"00-{'a' * 32}-{'b' * 16}-01"
EVERY: GenerateOptions = {
    "model": "m",
    "max_tokens": 3,
    "min_tokens": 1,
    "temperature": 0.0,
    "top_p": 0.5,
    "top_k": 7,
    "min_p": 0.1,
    "repetition_penalty": 1.1,
    "presence_penalty": 0.2,
    "frequency_penalty": 0.3,
    "logit_bias": {5: -1.0},
    "seed": 2**64 - 1,
    "stop": ["x", "y"],
    "stop_token_ids": [9],
    "ignore_eos": True,
    "logprobs": 0,
    "speculative_n_max": 0,
    "cohort": "c",
    "priority": 3,
    "cache_salt": "s",
    "request_id": "r",
    "traceparent": "t",
    "tracestate": "s",
    "timeout": 1.0,
}


def test_every_option_reaches_its_field() -> None:
    assert set(EVERY) == set(GenerateOptions.__annotations__)
    request = generate_request("p", None, None, EVERY)
    for name in ("max_tokens", "temperature", "top_p", "top_k", "seed", "logprobs", "min_p"):
        assert request.HasField(name), name  # a zero is a value
        assert getattr(request, name) == EVERY[name]  # type: ignore[literal-required]
    assert [(entry.token, entry.bias) for entry in request.logit_bias] == [(5, -1.0)]
    assert list(request.stop) == ["x", "y"]
    assert list(request.stop_token_ids) == [9]
    assert request.speculative.HasField("n_max")
    assert (request.ignore_eos, request.cohort, request.request_id) == (True, "c", "r")


def test_an_absent_option_is_an_absent_field() -> None:
    request = generate_request("p", None, None, {})
    assert [field.name for field, _ in request.ListFields()] == ["prompt"]


def test_each_input_is_one_of_three() -> None:
    assert generate_request("", None, None, {}).WhichOneof("input") == "prompt"
    chat = generate_request(None, [{"role": "user", "content": "a"}], None, {})
    assert (chat.chat.messages[0].role, chat.chat.messages[0].content) == ("user", "a")
    tokens = generate_request(None, None, [], {})
    assert tokens.WhichOneof("input") == "tokens"
    for inputs in ((None, None, None), ("a", None, [1]), ("a", [], None)):
        with pytest.raises(TypeError, match="exactly one"):
            generate_request(*inputs, {})  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="exactly one"):
        tokenize_request("a", [], "")


def test_a_single_stop_string_is_not_its_characters() -> None:
    assert list(generate_request("p", None, None, {"stop": "END"}).stop) == ["END"]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("seed", -1),
        ("seed", 2**64),
        ("max_tokens", 2**32),
        ("temperature", "hot"),
        ("logit_bias", {-1: 0.0}),
        ("stop", ["\ud800"]),
        ("stop", [7]),
        ("stop_token_ids", [-1]),
        ("speculative_n_max", -1),
        ("request_id", 7),
        ("logit_bias", 3),
        ("stop", 3),
    ],
)
def test_what_the_wire_cannot_carry_is_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        generate_request("p", None, None, {name: value})
    assert caught.value.param == name


def test_a_message_with_other_keys_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match="role"):
        generate_request(None, [{"role": "user"}], None, {})
    with pytest.raises(InvalidRequestError, match="role"):
        generate_request(None, [{"role": "user", "content": "a", "name": "b"}], None, {})


@pytest.mark.parametrize("messages", [[1], [None], 5, "hello", {"role": "user"}])
def test_messages_that_are_none_are_refused_by_name(messages: Any) -> None:
    for make in (generate_request, lambda *inputs: tokenize_request(None, inputs[1], "")):
        with pytest.raises(InvalidRequestError) as caught:
            make(None, messages, None, {})
        assert caught.value.param == "messages"


def test_an_unknown_option_is_a_type_error_that_names_the_known_ones() -> None:
    with pytest.raises(TypeError, match=r"'max_token'; known: .*max_tokens"):
        generate_request("p", None, None, {"max_token": 3})


def test_an_explicit_traceparent_wins_and_none_is_sent_without_a_trace() -> None:
    assert trace_metadata({"traceparent": PARENT, "tracestate": "a=1"}) == [
        ("traceparent", PARENT),
        ("tracestate", "a=1"),
    ]
    assert trace_metadata({"traceparent": PARENT}) == [("traceparent", PARENT)]
    assert trace_metadata({"traceparent": f"01{PARENT[2:]}-more"})
    assert trace_metadata({}) == []


@pytest.mark.parametrize(
    ("options", "param"),
    [
        ({"traceparent": "t"}, "traceparent"),
        ({"traceparent": 7}, "traceparent"),
        ({"traceparent": PARENT + "\n"}, "traceparent"),
        ({"traceparent": f"ff{PARENT[2:]}"}, "traceparent"),
        ({"traceparent": f"00-{'0' * 32}-{'b' * 16}-01"}, "traceparent"),
        ({"traceparent": PARENT.upper()}, "traceparent"),
        ({"traceparent": PARENT, "tracestate": "é"}, "tracestate"),
        ({"traceparent": PARENT, "tracestate": "a" * 513}, "tracestate"),
        ({"tracestate": "a=1"}, "tracestate"),
    ],
)
def test_a_trace_context_that_nobody_could_read_is_refused(
    options: dict[str, Any], param: str
) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        trace_metadata(options)
    assert caught.value.param == param


def test_the_current_span_is_passed_on() -> None:
    from opentelemetry.sdk.trace import TracerProvider

    with TracerProvider().get_tracer("test").start_as_current_span("client") as span:
        carrier = dict(trace_metadata({}))
    trace_id = f"{span.get_span_context().trace_id:032x}"
    assert carrier["traceparent"].split("-")[1] == trace_id
    assert trace_metadata({}) == []


def test_deltas_join_to_the_output() -> None:
    deltas = [
        Delta("a", (1, 2), accepted=1, request_id="r"),
        Delta("", (3,), request_id="r"),
        Delta("b", (), finish_reason="stop", usage=Usage(4, 3), request_id="r"),
    ]
    whole = joined(deltas, "m")
    assert (whole.text, whole.token_ids, whole.finish_reason) == ("ab", (1, 2, 3), "stop")
    assert (whole.usage.total_tokens, whole.request_id, whole.model) == (7, "r", "m")


def test_rates_are_absent_rather_than_divided_by_zero() -> None:
    """S53: no drafts is no rate."""
    assert (Speculation().acceptance_rate, Speculation().acceptance_length) == (None, None)
    some = Speculation(rounds=2, drafted=8, accepted=8)
    assert (some.acceptance_rate, some.acceptance_length) == (1.0, 5.0)
