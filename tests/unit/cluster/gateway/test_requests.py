from __future__ import annotations

from typing import Any

import pytest

from cluster.gateway.body import parse_json
from cluster.gateway.errors import InvalidRequest
from cluster.gateway.requests import parse_chat, parse_completion

USER = [{"role": "user", "content": "hi"}]


def refused(kind: Any, document: dict[str, Any]) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as raised:
        read_all(kind, document)
    return raised.value


def read_all(kind: Any, document: dict[str, Any]) -> None:
    request = kind(document)
    request.sampling_fields()
    request.options()
    if kind is parse_completion:
        request.one_prompt()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("tools", [{"type": "function"}]),
        ("n", 2),
        ("response_format", {"type": "json_object"}),
        ("structured_outputs", {"regex": "a"}),
        ("logprob_token_ids", [1]),
        ("bad_words", ["x"]),
        ("use_beam_search", True),
        ("chat_template", "{{x}}"),
        ("reasoning_effort", "high"),
        ("truncate_prompt_tokens", 3),
        ("n", True),  # true is not 1
        ("use_beam_search", 0),
        ("length_penalty", True),
    ],
)
def test_a_known_field_that_is_not_honoured_is_refused_by_name(field: str, value: object) -> None:
    error = refused(parse_chat, {"messages": USER, field: value})
    assert error.param == field
    assert "is not supported yet" in error.message
    assert error.code == "unsupported_parameter"


@pytest.mark.parametrize(
    ("field", "value"),
    [("n", 1), ("tools", None), ("tools", []), ("tool_choice", "none"), ("length_penalty", 1)],
)
def test_a_field_that_asks_for_nothing_more_passes(field: str, value: object) -> None:
    assert parse_chat({"messages": USER, field: value}) == parse_chat({"messages": USER})


def test_echo_is_false_or_refused() -> None:
    parse_completion({"prompt": "x", "echo": False})
    assert refused(parse_completion, {"prompt": "x", "echo": True}).param == "echo"


def test_an_unknown_field_is_refused_with_close_matches() -> None:
    error = refused(parse_chat, {"messages": USER, "max_token": 5})
    assert error.param == "max_token"
    assert "max_tokens" in error.message
    assert error.code == "unknown_parameter"
    long = refused(parse_chat, {"messages": USER, "x" * 5000: 5})
    assert len(long.message) < 200


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("temperature", "0.5"),
        ("temperature", True),
        ("max_tokens", 5.5),
        ("max_tokens", True),
        ("seed", "1"),
        ("stop", 3),
        ("stop", [1]),
        ("stop_token_ids", ["a"]),
        ("stream", "yes"),
        ("logit_bias", {"a": 1}),
        ("logit_bias", [1]),
        ("metadata", {"a": 1}),
        ("top_p", float("inf")),
        ("messages", "hi"),
        ("messages", [3]),
        ("messages", []),
        ("model", 3),
        ("speculative", 3),
    ],
)
def test_a_value_of_the_wrong_type_is_refused_by_its_name(field: str, value: object) -> None:
    error = refused(parse_chat, {"messages": USER, field: value})
    assert error.param is not None
    assert error.param.split("[")[0] == field


def test_a_token_is_biased_once_however_it_is_spelled() -> None:
    error = refused(parse_completion, {"prompt": "x", "logit_bias": {"01": 1, "1": 2}})
    assert error.param == "logit_bias"
    alone = parse_completion({"prompt": "x", "logit_bias": {"01": 1}})
    assert alone.sampling_fields().logit_bias == {1: 1.0}


@pytest.mark.parametrize(
    ("message", "param"),
    [
        ({"role": "user"}, "messages[0].content"),
        ({"role": "wizard", "content": "x"}, "messages[0].role"),
        ({"role": "tool", "content": "x"}, "messages[0].role"),
        ({"role": "user", "content": None}, "messages[0].content"),
        ({"role": "user", "content": "x", "colour": 1}, "messages[0].colour"),
        ({"role": "user", "content": "x", "tool_calls": [{}]}, "messages[0].tool_calls"),
        ({"role": "user", "content": [{"type": "image_url"}]}, "messages[0].content[0].type"),
        ({"role": "user", "content": [{"type": "text", "text": 3}]}, "messages[0].content[0].text"),
        ({"role": "user", "content": ["x"]}, "messages[0].content[0]"),
    ],
)
def test_a_bad_message_is_named_by_its_place(message: dict[str, Any], param: str) -> None:
    assert refused(parse_chat, {"messages": [message]}).param == param


def test_text_parts_are_joined_and_developer_is_system() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    request = parse_chat({"messages": [{"role": "developer", "content": parts}]})
    assert request.messages[0].for_template() == {"role": "system", "content": "ab"}


def test_the_newer_name_of_max_tokens_wins_and_is_named() -> None:
    body = {"messages": USER, "max_tokens": 3, "max_completion_tokens": 4}
    fields = parse_chat(body).sampling_fields()
    assert (fields.max_tokens, fields.max_tokens_param) == (4, "max_completion_tokens")
    fields = parse_chat({"messages": USER, "max_tokens": 3}).sampling_fields()
    assert (fields.max_tokens, fields.max_tokens_param) == (3, "max_tokens")


def test_logprobs_of_chat_are_a_switch_and_a_number() -> None:
    assert parse_chat({"messages": USER}).sampling_fields().logprobs is None
    assert parse_chat({"messages": USER, "logprobs": True}).sampling_fields().logprobs == 0
    both = {"messages": USER, "logprobs": True, "top_logprobs": 3}
    assert parse_chat(both).sampling_fields().logprobs == 3
    assert refused(parse_chat, {"messages": USER, "top_logprobs": 3}).param == "top_logprobs"
    both["top_logprobs"] = 21
    assert refused(parse_chat, both).param == "top_logprobs"


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [("ab", "ab"), ([1, 2], [1, 2]), (["ab"], "ab"), ([[1, 2]], [1, 2]), ([], []), ("", "")],
)
def test_one_prompt_comes_in_four_forms(prompt: Any, expected: object) -> None:
    assert parse_completion({"prompt": prompt}).one_prompt() == expected


def test_several_prompts_are_refused_by_name() -> None:
    for prompt in (["a", "b"], [[1], [2]]):
        assert refused(parse_completion, {"prompt": prompt}).param == "prompt"
    assert refused(parse_completion, {"prompt": [1, "a"]}).param == "prompt"
    assert refused(parse_completion, {}).code == "missing_required_parameter"


def test_stream_options_need_a_stream() -> None:
    error = refused(parse_chat, {"messages": USER, "stream_options": {"include_usage": True}})
    assert error.param == "stream_options"
    bad = {"messages": USER, "stream": True, "stream_options": {"include_usag": True}}
    assert refused(parse_chat, bad).param == "stream_options.include_usag"


def test_speculative_options_beyond_n_max_are_refused_by_name() -> None:
    parse_chat({"messages": USER, "speculative": {"n_max": 0}})
    error = refused(parse_chat, {"messages": USER, "speculative": {"p_min": 0.5}})
    assert error.param == "speculative.p_min"


@pytest.mark.parametrize(
    ("body", "word"),
    [
        (b"{", "JSON"),
        (b"", "JSON"),
        (b"[1]", "object"),
        (b'"x"', "object"),
        (b'{"a": "\xff"}', "UTF-8"),
        (b"\xef\xbb\xbf{}", "JSON"),
        (b'{"a": NaN}', "NaN"),
        (b'{"a": -Infinity}', "Infinity"),
        (b'{"a": ' + b"9" * 5000 + b"}", "too long"),
        (b'{"a": ' + b"[" * 200_000 + b"}", "nested"),
        (b'{"a": ' + b'{"a":' * 200_000, "nested"),
        (rb'{"a": {"b": ["x", "\ud800"]}}', r"a.b\[1\]"),
        (rb'{"\udfff": 1}', "surrogate"),
    ],
)
def test_a_body_that_is_no_json_object_is_a_typed_error(body: bytes, word: str) -> None:
    with pytest.raises(InvalidRequest, match=word):
        parse_json(body)


@pytest.mark.parametrize(
    "body",
    [
        rb'{"' + b"x" * 100_000 + rb'": "\ud800"}',
        b'{"ab":' * 900 + rb'"\ud800"' + b"}" * 900,
    ],
)
def test_a_refusal_shows_little_of_a_clients_own_names(body: bytes) -> None:
    with pytest.raises(InvalidRequest, match="surrogate") as raised:
        parse_json(body)
    assert raised.value.param is not None
    assert len(raised.value.param) <= 128
    assert len(raised.value.message) < 200


def test_a_surrogate_pair_is_a_character() -> None:
    assert parse_json(rb'{"a": "\ud83c\udf89"}') == {"a": "🎉"}
