"""fp8 features: half the bytes, bounded error."""

from __future__ import annotations

import pytest
import torch

from actors.exchange import fp8
from actors.exchange.codec import WireError, tensor_from_pb, tensor_to_pb


def test_an_error_is_at_most_a_sixteenth_of_the_value_or_a_bit_of_its_group() -> None:
    torch.manual_seed(0)
    rows = torch.randn(33, 192).bfloat16()
    rows[:, 70] *= 100.0  # an outlier costs its own group alone
    rows[3] = 0.0
    back = fp8.unpack(fp8.pack(rows)).float()
    largest = rows.float().view(33, 3, 64).abs().amax(-1, keepdim=True).expand(33, 3, 64)
    bound = torch.maximum(rows.float().abs() / 15, largest.reshape(33, 192) / 2**10)
    assert ((back - rows.float()).abs() <= bound).all()
    assert (back[3] == 0).all()
    assert ((back - rows.float()).abs() > 0).any()


def test_a_row_takes_a_byte_a_channel_and_two_a_group() -> None:
    packed = fp8.pack(torch.ones(5, 128))
    assert packed.shape == (5, 132)
    assert packed.dtype is torch.uint8
    assert fp8.packed_width(128) == 132
    assert fp8.channels_of(132) == 128


@pytest.mark.parametrize("width", [0, 1, 65, 131])
def test_a_width_that_no_channels_have_is_refused(width: int) -> None:
    assert fp8.channels_of(width) == 0
    with pytest.raises(ValueError, match="whole groups"):
        fp8.unpack(torch.zeros(2, width, dtype=torch.uint8))


def test_channels_that_are_no_multiple_of_the_group_are_refused() -> None:
    with pytest.raises(ValueError, match="multiple of 64"):
        fp8.pack(torch.ones(2, 65))


@pytest.mark.parametrize("value", [float("inf"), float("nan")])
def test_what_is_not_finite_stays_visible(value: float) -> None:
    """A drafter checks its features; a finite number in their place would hide the fault."""
    rows = torch.ones(1, 64)
    rows[0, 5] = value
    assert not fp8.unpack(fp8.pack(rows)).isfinite().all()


@pytest.mark.parametrize("rows", [0, 3])
def test_it_travels_packed_and_arrives_as_bf16(rows: int) -> None:
    packed = fp8.pack(torch.randn(rows, 128).bfloat16())
    message = tensor_to_pb(packed)
    assert len(message.data) == rows * 132
    back = tensor_from_pb(message, max_rows=8, max_columns=1024)
    assert back.dtype is torch.bfloat16
    assert torch.equal(back, fp8.unpack(packed))


def test_bytes_that_are_no_whole_groups_are_a_wire_error() -> None:
    message = tensor_to_pb(torch.zeros(2, 131, dtype=torch.uint8))
    with pytest.raises(WireError, match="shape"):
        tensor_from_pb(message, max_rows=8, max_columns=1024)
