from __future__ import annotations

import struct

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from actors.contracts import Commit, DrafterInfo, OpenSession, Proposal, SessionKey
from actors.exchange import codec
from actors.exchange.compat import Compat
from actors.exchange.frames import (
    ROOM,
    drafter_frames,
    feature_frames,
    round_frames,
    split_commit,
)
from actors.exchange.limits import MAX_BLOCK, MAX_COMMIT, MAX_FRAME_BYTES, Limits
from actors.exchange.sessions import merge
from actors.exchange.wire_error import WireError
from actors.sampling.params import MAX_SEED, SamplingParams
from pilotfish.v1 import common_pb2
from pilotfish.v1 import exchange_pb2 as pb

KEY = SessionKey("v0", "r0", 3)
FLOATS32 = st.floats(-100, 100, width=32)
PARAMS = st.builds(
    SamplingParams,
    temperature=st.floats(0, 5),
    top_k=st.integers(0, 2**31),
    top_p=st.floats(0, 1, exclude_min=True),
    min_p=st.floats(0, 1),
    repetition_penalty=st.floats(0.01, 100),
    presence_penalty=st.floats(-2, 2),
    frequency_penalty=st.floats(-2, 2),
    logit_bias=st.lists(st.tuples(st.integers(0, 2**32 - 1), FLOATS32), max_size=4).map(tuple),
    seed=st.integers(0, MAX_SEED),
    max_tokens=st.integers(0, 2**32 - 1),
    min_tokens=st.integers(0, 2**32 - 1),
    stop_token_ids=st.frozensets(st.integers(0, 2**32 - 1), max_size=4),
    ignore_eos=st.booleans(),
    logprobs=st.none() | st.integers(0, 1024),
)


def make_tensor(shape: tuple[int, ...], dtype: str = "bf16", size: int | None = None) -> object:
    itemsize = 4 if dtype == "f32" else 2
    count = 1
    for n in shape:
        count *= n
    return common_pb2.Tensor(
        dtype=dtype, shape=shape, data=bytes(count * itemsize if size is None else size)
    )


@settings(deadline=None)
@given(PARAMS)
def test_sampling_crosses_the_wire_unchanged(params: SamplingParams) -> None:
    data = codec.sampling_to_pb(params).SerializeToString()
    assert codec.sampling_from_pb(common_pb2.Sampling.FromString(data)) == params


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("temperature", -1.0),
        ("temperature", float("nan")),
        ("temperature", float("inf")),
        ("top_p", 0.0),
        ("top_p", 1.5),
        ("min_p", -0.1),
        ("repetition_penalty", 0.0),
        ("repetition_penalty", 1e-38),  # a logit divided by it is no number
        ("repetition_penalty", 1e300),
        ("presence_penalty", float("nan")),
        ("frequency_penalty", float("inf")),
        ("logprobs", 100_000),
    ],
)
def test_a_bad_sampling_field_is_refused_by_name(field: str, value: float) -> None:
    message = codec.sampling_to_pb(SamplingParams())
    setattr(message, field, value)
    with pytest.raises(WireError) as caught:
        codec.sampling_from_pb(message)
    assert caught.value.field == field


def test_no_sampling_field_has_an_implied_default() -> None:
    with pytest.raises(WireError):
        codec.sampling_from_pb(common_pb2.Sampling())


@settings(deadline=None)
@given(rows=st.integers(0, 5), columns=st.integers(1, 7), data=st.data())
def test_bf16_crosses_the_wire_bit_for_bit(rows: int, columns: int, data: st.DataObject) -> None:
    bits = data.draw(
        st.lists(st.integers(0, 65535), min_size=rows * columns, max_size=rows * columns)
    )
    raw = struct.pack(f"<{len(bits)}H", *bits)
    tensor = torch.frombuffer(bytearray(raw or b"\0\0"), dtype=torch.bfloat16)
    tensor = tensor[: len(bits)].view(rows, columns)
    message = codec.tensor_to_pb(tensor)
    assert (message.dtype, message.data) == ("bf16", raw)
    back = codec.tensor_from_pb(message, max_rows=5, max_columns=7)
    assert torch.equal(back.view(torch.int16), tensor.view(torch.int16))


def test_a_view_with_strides_is_sent_row_major() -> None:
    tensor = torch.arange(12, dtype=torch.bfloat16).view(3, 4).T
    back = codec.tensor_from_pb(codec.tensor_to_pb(tensor), max_rows=4, max_columns=3)
    assert torch.equal(back, tensor)


def test_dtypes_without_a_name_on_the_wire_are_sent_as_bf16() -> None:
    tensor = torch.tensor([[1.0, 2.5]], dtype=torch.float64)
    assert codec.tensor_to_pb(tensor).dtype == "bf16"
    assert codec.tensor_to_pb(tensor.float()).dtype == "f32"


@pytest.mark.parametrize(
    "message",
    [
        make_tensor((2, 3), dtype="fp16"),
        make_tensor((6,)),
        make_tensor((1, 2, 3)),
        make_tensor((2, 3), size=11),
        make_tensor((2, 3), size=13),
        make_tensor((2, 0)),
        make_tensor((9, 3)),
        make_tensor((2, 99)),
        make_tensor((2**31, 2**31), size=8),  # refused before anything is allocated
    ],
)
def test_a_tensor_that_is_not_what_it_says_is_refused(message: common_pb2.Tensor) -> None:
    with pytest.raises(WireError):
        codec.tensor_from_pb(message, max_rows=8, max_columns=16)


def test_sessions_messages_cross_the_wire_unchanged() -> None:
    limits = Limits()
    opening = OpenSession(KEY, (1, 2, 3), SamplingParams(temperature=0.0), tenant="t", prompt_len=2)
    message = codec.open_to_pb(opening, features_follow=True, trace=("00-a-b-01", "k=v"))
    assert message.features_follow
    assert (message.trace.traceparent, message.trace.tracestate) == ("00-a-b-01", "k=v")
    assert codec.open_from_pb(message, codec.key_from_pb(message.key, "v0"), limits) == opening

    rows = torch.randn(2, 4).bfloat16()
    commit = Commit(KEY, 7, 3, (4, 5), rows, 4)
    back = codec.commit_from_pb(codec.commit_to_pb(commit), KEY, limits)
    assert back.features is not None
    assert torch.equal(back.features, rows)
    assert (back.round, back.from_len, back.tokens, back.depth) == (7, 3, (4, 5), 4)

    block = codec.block_to_pb(Proposal(KEY, 5, (6, 7), (0.5, 0.25)), 7, 9, 1)
    assert (block.base_len, tuple(block.tokens), block.round) == (5, (6, 7), 7)

    info = DrafterInfo("eagle", "x", 9, True, (1, 2), 5, False, 100, 2**33, 4096)
    assert codec.info_from_pb(codec.info_to_pb(info, 8)) == info
    compat = Compat("a", "b", "c", (1,), "rule")
    assert codec.compat_from_pb(codec.compat_to_pb(compat)) == compat


@pytest.mark.parametrize(
    ("change", "field"),
    [
        (lambda m: m.ClearField("tokens"), "tokens"),
        (lambda m: m.tokens.extend(range(20)), "tokens"),
        (lambda m: m.tokens.append(128), "tokens"),
        (lambda m: m.ClearField("sampling"), "top_p"),
        (lambda m: setattr(m, "prompt_len", 4), "prompt_len"),
    ],
)
def test_a_bad_open_is_refused_by_the_name_of_its_field(change: object, field: str) -> None:
    opening = OpenSession(KEY, (1, 2, 3), SamplingParams())
    message = codec.open_to_pb(opening, features_follow=False)
    change(message)  # type: ignore[operator]
    with pytest.raises(WireError) as caught:
        codec.open_from_pb(message, KEY, Limits(max_tokens=16, vocab_size=128))
    assert caught.value.field == field


def test_the_longest_ids_and_contexts_are_bounded() -> None:
    with pytest.raises(WireError):
        codec.key_from_pb(pb.SessionKey(request="x" * 257), "v0")
    with pytest.raises(WireError):
        codec.key_from_pb(pb.SessionKey(), "v0")
    late = codec.commit_to_pb(Commit(KEY, 1, 2**31, (1,)))
    with pytest.raises(WireError):
        codec.commit_from_pb(late, KEY, Limits())


# ---------------------------------------------------------------------------------- frames


@settings(deadline=None)
@given(
    tokens=st.integers(1, 40),
    columns=st.integers(1, 8),
    room=st.integers(2, 64),
    start=st.integers(1, 9),
)
def test_a_split_commit_is_the_same_commit(
    tokens: int, columns: int, room: int, start: int
) -> None:
    rows = torch.randn(tokens, columns).bfloat16()
    whole = Commit(KEY, 2, start, tuple(range(tokens)), rows, 5)
    parts = list(split_commit(whole, room))
    assert [p.depth for p in parts] == [0] * (len(parts) - 1) + [5]
    for part in parts:
        assert part.features is not None
        assert part.features.shape[0] == len(part.tokens)
        assert part.features.nbytes <= max(room, columns * 2)
    length = start
    for part in parts:
        assert part.from_len == length
        length += len(part.tokens)
    back = merge(parts)
    assert back.features is not None
    assert torch.equal(back.features, rows)
    assert (back.tokens, back.from_len, back.depth, back.round) == (whole.tokens, start, 5, 2)


def test_a_commit_without_features_is_split_at_the_token_limit() -> None:
    parts = list(split_commit(Commit(KEY, 1, 5, (1,) * (2 * MAX_COMMIT + 1), None, 3)))
    assert [len(p.tokens) for p in parts] == [MAX_COMMIT, MAX_COMMIT, 1]


@pytest.mark.parametrize("around", [-1, 0, 1])
def test_feature_frames_stay_within_the_limit_around_it(around: int) -> None:
    """R03. One row of 4 MiB ± 2 bytes in all, however it falls, never makes a frame over 1 MiB."""
    columns = 512
    count = (4 << 20) // (2 * columns) + around
    rows = torch.randn(count, columns).bfloat16()
    frames = list(feature_frames(SessionKey("v", "é" * 256, 2**32 - 1), rows))
    assert max(f.ByteSize() for f in frames) <= MAX_FRAME_BYTES
    assert len(frames) == -(-count // (len(frames[0].features[0].rows.data) // (2 * columns)))
    at = 0
    for frame in frames:
        (part,) = frame.features
        assert part.from_row == at
        at += part.rows.shape[0]
    assert at == count
    assert b"".join(f.features[0].rows.data for f in frames) == codec.tensor_to_pb(rows).data


def test_round_frames_keep_the_order_and_the_limit() -> None:
    commits = [
        Commit(SessionKey("v", f"r{i}"), 1, 4, (1, 2), torch.randn(2, 30_000).bfloat16(), 1)
        for i in range(20)
    ]
    opens = [
        codec.open_to_pb(
            OpenSession(SessionKey("v", f"r{i}"), (200_000,) * 60_000, SamplingParams()),
            features_follow=False,
        )
        for i in range(20)
    ]
    frames = list(round_frames(opens, commits, [pb.Close(key=codec.key_to_pb(KEY))]))
    assert len(frames) > 1
    assert max(f.ByteSize() for f in frames) <= MAX_FRAME_BYTES
    assert [o.key.request for f in frames for o in f.opens] == [f"r{i}" for i in range(20)]
    assert [c.key.request for f in frames for c in f.commits] == [f"r{i}" for i in range(20)]
    assert len(frames[-1].closes) == 1


def test_the_longest_open_fits_a_frame() -> None:
    limits = Limits()
    opening = OpenSession(KEY, (2**21 - 1,) * limits.max_tokens, SamplingParams())
    frames = list(round_frames([codec.open_to_pb(opening, features_follow=False)], [], []))
    assert len(frames) == 1
    assert frames[0].ByteSize() <= MAX_FRAME_BYTES


def test_answers_of_very_many_sessions_are_split() -> None:
    block = codec.block_to_pb(
        Proposal(SessionKey("v", "r" * 256), 1, (2**31,) * MAX_BLOCK),
        round=1,
        draft_us=0,
        queue_us=0,
    )
    frames = list(drafter_frames([block] * 4096, [pb.Fault(key=codec.key_to_pb(KEY))]))
    assert max(f.ByteSize() for f in frames) <= ROOM + 4096
    assert sum(len(f.blocks) for f in frames) == 4096
    assert len(frames[-1].faults) == 1
    assert list(drafter_frames([], [])) == []
