"""One prompt through one leg: the same server, standard decode or remote drafting."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from pilotfish import Client, Delta, TokenScore
from pilotfish._options import GenerateOptions


@dataclass(frozen=True, slots=True)
class Leg:
    """n_max = 0 is standard decode; None leaves D to the policy."""

    name: str
    n_max: int | None


STANDARD = Leg("standard decode", 0)
REMOTE = Leg("remote drafting", None)


@dataclass(frozen=True, slots=True)
class LegResult:
    """What one leg made of one prompt.

    decode_s: seconds from the first token to the last; decode_tokens: tokens in that time.
    gaps: per token, the distance between the two best log-probabilities (nats).
    """

    text: str
    token_ids: tuple[int, ...]
    first_s: float
    decode_s: float
    decode_tokens: int
    rounds: int
    drafted: int
    accepted: int
    remote_accepted: int
    gaps: tuple[float, ...]
    reasons: tuple[str, ...]

    @property
    def tokens_per_s(self) -> float:
        return self.decode_tokens / self.decode_s if self.decode_s > 0 else 0.0

    @property
    def decode_rounds(self) -> int:
        """Forward passes after the first token."""
        return self.decode_tokens - self.accepted


def run_leg(
    client: Client,
    leg: Leg,
    prompt: str,
    max_tokens: int,
    show: Callable[[Delta], None] | None = None,
) -> LegResult:
    """Stream one greedy answer; raises `pilotfish.PilotfishError` subclasses."""
    started = time.perf_counter()
    first = last = 0.0
    text: list[str] = []
    ids: list[int] = []
    gaps: list[float] = []
    first_tokens = 0
    speculation = None
    options: GenerateOptions = {
        "max_tokens": max_tokens,
        "temperature": 0.0,
        "logprobs": 2,
        # A prompt that one leg has computed is not computed already for the other.
        "cache_salt": leg.name,
    }
    if leg.n_max is not None:
        options["speculative_n_max"] = leg.n_max
    with client.stream(messages=[{"role": "user", "content": prompt}], **options) as deltas:
        for delta in deltas:
            last = time.perf_counter()
            if delta.token_ids and not first:
                first, first_tokens = last, len(delta.token_ids)
            text.append(delta.text)
            ids.extend(delta.token_ids)
            gaps.extend(_gap(score) for score in delta.logprobs)
            speculation = delta.speculation or speculation
            if show is not None:
                show(delta)
    return LegResult(
        text="".join(text),
        token_ids=tuple(ids),
        first_s=first - started,
        decode_s=last - first,
        decode_tokens=len(ids) - first_tokens,
        rounds=speculation.rounds if speculation else 0,
        drafted=speculation.drafted if speculation else 0,
        accepted=speculation.accepted if speculation else 0,
        remote_accepted=speculation.remote_accepted if speculation else 0,
        gaps=tuple(gaps),
        reasons=tuple(speculation.reasons) if speculation else (),
    )


def _gap(score: TokenScore) -> float:
    top = score.top
    return top[0].logprob - top[1].logprob if len(top) > 1 else float("inf")
