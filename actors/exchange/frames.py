"""Messages packed into frames of at most 1 MiB; what is too large for one is split.

Order is kept: Opens, then Commits, then Closes of a call; a receiver that takes frames in order
sees each session's messages in order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from actors.contracts import Commit, SessionKey
from actors.exchange.codec import commit_to_pb, key_to_pb, tensor_to_pb
from actors.exchange.limits import MAX_COMMIT, MAX_FRAME_BYTES
from pilotfish.v1 import exchange_pb2

if TYPE_CHECKING:
    import torch

ROOM = MAX_FRAME_BYTES - 4096
"""Bytes of messages in a frame; the rest is for its own fields and the messages' heads."""
_HEAD = 8  # tag and length of one message


def round_frames(
    opens: Iterable[exchange_pb2.Open],
    commits: Iterable[Commit],
    closes: Iterable[exchange_pb2.Close],
) -> Iterator[exchange_pb2.VerifierFrame]:
    """Frames of the round lane."""
    frame, used = exchange_pb2.VerifierFrame(), 0
    messages: list[exchange_pb2.Open | exchange_pb2.Close | Commit] = [*opens, *_parts(commits)]
    messages.extend(closes)
    for message in messages:
        size = _size(message)
        if used and used + size > ROOM:
            yield frame
            frame, used = exchange_pb2.VerifierFrame(), 0
        used += size
        if isinstance(message, Commit):
            commit_to_pb(message, frame.commits.add())
        elif isinstance(message, exchange_pb2.Open):
            frame.opens.append(message)
        else:
            frame.closes.append(message)
    if used:
        yield frame


def _parts(commits: Iterable[Commit]) -> Iterator[Commit]:
    for commit in commits:
        yield from split_commit(commit)


def _size(message: exchange_pb2.Open | exchange_pb2.Close | Commit) -> int:
    """At least the bytes it takes in a frame."""
    if not isinstance(message, Commit):
        return message.ByteSize() + _HEAD
    features = 0
    if message.features is not None:
        features = len(message.tokens) * message.features.shape[1] * _itemsize(message.features)
    return features + 5 * len(message.tokens) + 4 * len(message.key.request) + 128


def split_commit(commit: Commit, room: int = ROOM // 2) -> Iterator[Commit]:
    """Contiguous commits that a drafter takes: of at most MAX_COMMIT tokens and `room` bytes of
    features each; only the last asks for a block."""
    rows = min(rows_that_fit(commit.features, room), MAX_COMMIT)
    if len(commit.tokens) <= rows:
        yield commit
        return
    for start in range(0, len(commit.tokens), rows):
        stop = min(start + rows, len(commit.tokens))
        yield Commit(
            commit.key,
            commit.round,
            commit.from_len + start,
            commit.tokens[start:stop],
            None if commit.features is None else commit.features[start:stop],
            commit.depth if stop == len(commit.tokens) else 0,
        )


def feature_frames(
    key: SessionKey, rows: torch.Tensor, from_row: int = 0, room: int = ROOM
) -> Iterator[exchange_pb2.VerifierFrame]:
    """Frames of the bulk lane: `rows` in order, each frame as full as it may be."""
    step = rows_that_fit(rows, room - 4 * len(key.request) - 64)
    for start in range(0, rows.shape[0], step):
        frame = exchange_pb2.VerifierFrame()
        part = frame.features.add(key=key_to_pb(key), from_row=from_row + start)
        tensor_to_pb(rows[start : start + step], part.rows)
        yield frame


def rows_that_fit(rows: torch.Tensor | None, room: int) -> int:
    """How many rows of this width take at most `room` bytes; at least one."""
    if rows is None or not rows.shape[1]:
        return 1 << 30
    return max(1, room // (rows.shape[1] * _itemsize(rows)))


def _itemsize(rows: torch.Tensor) -> int:
    """On the wire."""
    return rows.element_size() if rows.element_size() in (1, 4) else 2


def drafter_frames(
    blocks: Iterable[exchange_pb2.Block], faults: Iterable[exchange_pb2.Fault]
) -> Iterator[exchange_pb2.DrafterFrame]:
    """Frames of a drafter's answer; one for all sessions unless they are very many."""
    frame, used = exchange_pb2.DrafterFrame(), 0
    messages: Iterable[exchange_pb2.Block | exchange_pb2.Fault] = (*blocks, *faults)
    for message in messages:
        size = message.ByteSize() + _HEAD
        if used and used + size > ROOM:
            yield frame
            frame, used = exchange_pb2.DrafterFrame(), 0
        used += size
        if isinstance(message, exchange_pb2.Block):
            frame.blocks.append(message)
        else:
            frame.faults.append(message)
    if used:
        yield frame
