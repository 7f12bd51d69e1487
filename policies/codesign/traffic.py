"""What crosses between verifier and drafter each round, and the network it takes.

Up: features of the committed rows that have one, AL rows a session a round (the newest token has
none yet). Down: the block, 4 bytes a token and a small header.
"""

from __future__ import annotations

from dataclasses import dataclass

FP8_BLOCK = 64
"""Channels that share a scale of two bytes."""
HEADER = 24


@dataclass(frozen=True, slots=True)
class Features:
    """Bytes of one token's features: raw is every tap in bf16, projected what the drafter's first
    linear map makes of them, fp8 that in eight bits with a scale per 64 channels. Where the first
    step is no linear map, raw is all there is, in bf16 or fp8."""

    raw: int
    projected: int
    fp8: int


def features(hidden: int, taps: int, linear: bool) -> Features:
    raw = 2 * taps * hidden
    projected = 2 * hidden if linear and taps else raw
    scaled = projected // 2
    return Features(raw, projected, scaled + 2 * (-(-scaled // FP8_BLOCK)))


def round_bytes(token_bytes: float, tokens: float, sessions: int, depth: int) -> float:
    """Both ways, a round of all sessions in one frame each way. tokens: emitted a session."""
    down = 4 * depth + HEADER
    up = token_bytes * tokens + 4 * tokens + HEADER
    return sessions * (up + down)


def bits_a_second(bytes_a_round: float, round_s: float) -> float:
    return 8.0 * bytes_a_round / round_s


def wire_s(bytes_a_round: float, rtt_s: float, bytes_a_second: float) -> float:
    """Of a round trip with the frames in it."""
    return rtt_s + bytes_a_round / bytes_a_second
