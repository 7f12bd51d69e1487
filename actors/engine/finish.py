"""Where a request ends inside a verified block, exactly as token by token (S01, S04, S05, S35)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from actors.sampling.params import SamplingParams


@dataclass(frozen=True, slots=True)
class Settled:
    """tokens: what of the block belongs to the request. finish: None while it goes on.
    stop_token: the stop_token_ids entry that ended it, None for EOS and length."""

    tokens: tuple[int, ...]
    finish: Literal["stop", "length"] | None = None
    stop_token: int | None = None


def settle(
    tokens: Sequence[int],
    output_len: int,
    total_len: int,
    params: SamplingParams,
    eos_ids: frozenset[int],
    max_model_len: int,
) -> Settled:
    """Trim newly verified tokens. output_len and total_len count what was committed before.

    EOS (unless ignored) and stop token ids end with "stop" and are the last token kept; before
    min_tokens they end nothing. max_tokens output tokens, or max_model_len in all, end with
    "length". The first that happens counts; at the same token stop wins.
    """
    room = max(0, min(params.max_tokens - output_len, max_model_len - total_len))
    kept = tuple(tokens[:room])
    for place, token in enumerate(kept, 1):
        if output_len + place < params.min_tokens:
            continue
        if token in eos_ids and not params.ignore_eos:
            return Settled(kept[:place], "stop")
        if token in params.stop_token_ids:
            return Settled(kept[:place], "stop", token)
    return Settled(kept, "length" if len(kept) == room else None)
