"""Bounds on what a peer may send, and the gRPC options that go with them (pitfalls R03)."""

from __future__ import annotations

from dataclasses import dataclass

MAX_FRAME_BYTES = 1 << 20
"""No frame is larger: 4 MiB in one message takes four times as long as in four."""

MAX_RECEIVE_BYTES = 8 << 20
MAX_REQUEST_ID = 256
MAX_DETAIL = 512
MAX_BLOCK = 64
MAX_LAW = 1024
"""Ids in the law of one drafted token: a block of MAX_BLOCK stays within a frame."""
MAX_COMMIT = 4096
"""Tokens of one Commit."""
MAX_TIMINGS = 64
"""Rounds that a drafter timed of itself."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What a drafter accepts. vocab_size 0: any id below 2^32.

    max_tokens: of one session. max_columns: of one feature row.
    max_feature_bytes: features of all sessions that are still being opened.
    max_session_bytes: what all sessions may keep on the drafter's device, by its own account of a
        token (`DrafterInfo.token_bytes`); 0 is no bound.
    """

    max_sessions: int = 1024
    max_streams: int = 64
    max_tokens: int = 1 << 18
    max_columns: int = 1 << 17
    max_feature_bytes: int = 2 << 30
    max_session_bytes: int = 0
    vocab_size: int = 0


def channel_options(keepalive_ms: int = 10_000) -> list[tuple[str, int]]:
    """A channel with connections of its own that notices a dead peer on a quiet stream."""
    return [
        ("grpc.use_local_subchannel_pool", 1),
        ("grpc.max_receive_message_length", MAX_RECEIVE_BYTES),
        ("grpc.max_send_message_length", MAX_RECEIVE_BYTES),
        ("grpc.enable_retries", 0),
        ("grpc.keepalive_time_ms", keepalive_ms),
        ("grpc.keepalive_timeout_ms", 10_000),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),
        ("grpc.initial_reconnect_backoff_ms", 100),
        ("grpc.max_reconnect_backoff_ms", 2_000),
    ]


def server_options(keepalive_ms: int = 10_000) -> list[tuple[str, int]]:
    """A busy port is an error, and keepalive pings of quiet streams are no abuse."""
    return [
        ("grpc.so_reuseport", 0),
        ("grpc.max_receive_message_length", MAX_RECEIVE_BYTES),
        ("grpc.max_send_message_length", MAX_RECEIVE_BYTES),
        ("grpc.keepalive_time_ms", keepalive_ms),
        ("grpc.keepalive_timeout_ms", 10_000),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),
        ("grpc.http2.max_ping_strikes", 0),
        ("grpc.http2.min_ping_interval_without_data_ms", 50),
    ]
