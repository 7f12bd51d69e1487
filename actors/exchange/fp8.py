"""Features in fp8 (e4m3) with one scale per 64 channels: half of bf16's bytes on the wire.

Packed rows are uint8 [rows, channels + 2 · channels/64]: the values, then the scales in bf16.
"""

from __future__ import annotations

import torch

GROUP = 64
_LARGEST = torch.finfo(torch.float8_e4m3fn).max  # 448
_SCALE_BYTES = 2


def packed_width(channels: int) -> int:
    """Bytes of a row. Raises ValueError where channels are no multiple of the group."""
    if channels <= 0 or channels % GROUP:
        raise ValueError(f"{channels} channels are no multiple of {GROUP}")
    return channels + channels // GROUP * _SCALE_BYTES


def channels_of(width: int) -> int:
    """Channels of rows packed into `width` bytes; 0 where no number of channels packs so."""
    groups, rest = divmod(width, GROUP + _SCALE_BYTES)
    return 0 if rest else groups * GROUP


def pack(rows: torch.Tensor) -> torch.Tensor:
    """rows [n, channels] of any floating type; a value is off by at most a sixteenth of itself or
    1/2^10 of its group's largest."""
    count, channels = rows.shape
    packed_width(channels)
    groups = rows.float().view(count, channels // GROUP, GROUP)
    scales = (groups.abs().amax(-1) / _LARGEST).bfloat16()
    # A scale that was rounded down would put the largest value beyond the format's end.
    safe = scales.float().clamp(min=torch.finfo(torch.bfloat16).tiny)[..., None]
    values = (groups / safe).clamp(-_LARGEST, _LARGEST).to(torch.float8_e4m3fn)
    return torch.cat(
        (values.view(torch.uint8).view(count, channels), scales.view(torch.uint8)),
        1,
    )


def unpack(packed: torch.Tensor) -> torch.Tensor:
    """bf16 [n, channels] from uint8 [n, width]. Raises ValueError for another width."""
    channels = channels_of(packed.shape[1])
    if not channels:
        raise ValueError(f"{packed.shape[1]} bytes are no row of whole groups")
    values = packed[:, :channels].contiguous().view(torch.float8_e4m3fn).float()
    scales = packed[:, channels:].contiguous().view(torch.bfloat16).float()
    groups = values.view(packed.shape[0], channels // GROUP, GROUP) * scales[..., None]
    return groups.view(packed.shape[0], channels).bfloat16()
