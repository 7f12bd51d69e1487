"""The look at a message's bytes: it finds what the parser would, and never reads past its bound."""

from __future__ import annotations

from typing import Any, cast

import pytest
from google.protobuf.message import DecodeError, Message
from google.protobuf.unknown_fields import UnknownFieldSet
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.gateway import grpc_wire
from cluster.gateway.errors import InvalidRequest
from cluster.gateway.grpc_door import parse
from pilotfish.v1 import inference_pb2 as pb

REQUEST = pb.GenerateRequest.DESCRIPTOR


def unknown_in(message: Message) -> bool:
    """Whether protobuf itself kept something of the bytes that no field of the message holds."""
    if len(cast(Any, UnknownFieldSet(message))):
        return True
    return any(
        unknown_in(part)
        for field, value in message.ListFields()
        if field.message_type is not None
        for part in (value if field.is_repeated else (value,))
    )


def full() -> pb.GenerateRequest:
    request = pb.GenerateRequest(
        model="m", max_tokens=3, temperature=0.5, seed=7, stop=["a", "b"], stop_token_ids=[1, 300],
        ignore_eos=True, speculative=pb.Speculative(n_max=2), cohort="é",
    )  # fmt: skip
    request.chat.messages.add(role="user", content="hello")
    request.logit_bias.add(token=1, bias=2.0)
    return request


def test_a_sound_message_passes_and_is_what_was_sent() -> None:
    assert parse(pb.GenerateRequest, full().SerializeToString()) == full()
    assert parse(pb.GenerateRequest, b"") == pb.GenerateRequest()


@settings(max_examples=400)
@given(
    st.one_of(
        st.binary(max_size=40),
        st.lists(
            st.sampled_from([bytes([b]) for b in full().SerializeToString()]), max_size=80
        ).map(b"".join),
        st.tuples(st.integers(0, 90), st.integers(0, 255)).map(
            lambda change: (
                full().SerializeToString()[: change[0]]
                + bytes([change[1]])
                + full().SerializeToString()[change[0] + 1 :]
            )
        ),
    )
)
def test_what_passes_is_what_the_parser_takes_and_knows_whole(data: bytes) -> None:
    try:
        message = pb.GenerateRequest.FromString(data)
        sound = not unknown_in(message)
    except DecodeError:
        sound = False
    if sound:
        assert parse(pb.GenerateRequest, data) == message
    else:
        with pytest.raises(InvalidRequest):
            parse(pb.GenerateRequest, data)


@pytest.mark.parametrize(
    ("data", "param"),
    [
        (b"\x72\x00" * 2_000_000, "logit_bias"),
        (b"\x82\x01\x00" * 1_000_000, "stop"),
        (b"\x1a\x80\x80\x80\x01" + b"\x0a\x00" * (1 << 20), "chat.messages"),
        (b"\x88\x01\x05" * 1_000_000, "stop_token_ids"),
    ],
    ids=["biases", "stops", "messages", "unpacked"],
)
def test_a_crowd_of_fields_is_refused_by_name_and_never_built(
    data: bytes, param: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = 0
    fields = grpc_wire._fields

    def counted(*given: Any) -> Any:
        nonlocal seen
        for found in fields(*given):
            seen += 1
            yield found

    monkeypatch.setattr(grpc_wire, "_fields", counted)
    with pytest.raises(InvalidRequest, match=f"more than {grpc_wire.MAX_FIELDS} fields") as caught:
        parse(pb.GenerateRequest, data)
    assert caught.value.param == param
    assert seen <= grpc_wire.MAX_FIELDS + 1


def test_as_many_chat_messages_as_over_http_pass() -> None:
    request = pb.GenerateRequest()
    for _ in range(4096):
        request.chat.messages.add(role="user", content="a")
    assert parse(pb.GenerateRequest, request.SerializeToString()) == request
    many = pb.GenerateRequest(tokens=pb.TokenPrompt(ids=[7] * 100_000))
    assert parse(pb.GenerateRequest, many.SerializeToString()) == many


@pytest.mark.parametrize(
    ("data", "param"),
    [
        (b"\x12\x02\xff\xfe", "prompt"),
        (b"\x12\x01a\x82\x01\x01\xff", "stop"),
        (b"\x1a\x05\x0a\x03\x12\x01\xff", "chat.messages.content"),
    ],
)
def test_text_that_is_not_utf8_is_refused_by_its_name(data: bytes, param: str) -> None:
    with pytest.raises(InvalidRequest, match="UTF-8") as caught:
        parse(pb.GenerateRequest, data)
    assert caught.value.param == param
