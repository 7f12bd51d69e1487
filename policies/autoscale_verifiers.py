"""How many verifiers a load needs, by what each of them says of itself.

    add    the most of    requests / what one verifier may have
                          requests / what it decodes in time at D = 0, while tokens come too slowly
                          prompts waiting / what is read within the TTFT target
                          KV / what a verifier should fill
    keep   all of that, whether tokens come too slowly or not, and
                          tokens written / what is written at a full batch
                          + tokens read / what is read in all of the time,      with a margin

D is spent before replicas are added: a verifier comes when the target is missed and would be at
D = 0 too, and none goes that standard decode of the same traffic would miss. What is written does
not depend on the number of replicas; requests in flight do (smaller batches make faster steps), and
by them alone the last replica would be called back as soon as it had gone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from policies.autoscale import Look

MARGIN = 0.15
"""By so much the load may grow after a replica has gone, before one is missed."""
MOST = 1_000_000
"""Replicas; no limit of a deployment is higher."""

Signal = Literal["idle", "requests", "itl", "ttft", "kv", "tokens"]
Worth = dict[Signal, float]


@dataclass(frozen=True, slots=True)
class VerifierTargets:
    """itl_s, ttft_s: None sets none. kv_usage: share of the KV blocks in use, at most."""

    itl_s: float | None = None
    ttft_s: float | None = None
    kv_usage: float = 0.9


@dataclass(frozen=True, slots=True)
class VerifierLoad:
    """One verifier. running, waiting: requests. waiting_tokens: of those that wait.
    kv_wanted_share: blocks in use and those that waiting requests will need, of all. tokens_s,
    prompt_tokens_s: written and read now. most_requests: that it may have. batch, most_tokens_s,
    most_prompt_tokens_s: its `autoscale_capacity.Capacity`, 0 where unknown."""

    running: float = 0.0
    waiting: float = 0.0
    waiting_tokens: float = 0.0
    kv_wanted_share: float = 0.0
    tokens_s: float = 0.0
    prompt_tokens_s: float = 0.0
    most_requests: float = 0.0
    batch: float = 0.0
    most_tokens_s: float = 0.0
    most_prompt_tokens_s: float = 0.0


def demand(loads: Sequence[VerifierLoad], targets: VerifierTargets) -> tuple[Worth, Look]:
    """Verifiers' worth of each signal, and what follows. `loads`: of all that report, one at least;
    a verifier that has just come brings nothing yet, which is what it has to do."""
    requests = sum(load.running + load.waiting for load in loads)
    read_s = _mean([load.most_prompt_tokens_s for load in loads])
    worth: Worth = {
        "requests": _over(requests, _mean([load.most_requests for load in loads])),
        "itl": _over(requests, _mean([load.batch for load in loads])),
        "ttft": _over(sum(load.waiting_tokens for load in loads), read_s * (targets.ttft_s or 0.0)),
        "kv": sum(load.kv_wanted_share for load in loads) / targets.kv_usage,
        "tokens": sum(
            _over(load.tokens_s, load.most_tokens_s)
            + _over(load.prompt_tokens_s, load.most_prompt_tokens_s)
            for load in loads
        ),
    }
    useful = _whole((1.0 + MARGIN) * max(worth.values()))
    if not slow(loads, targets):
        del worth["itl"]
    # A request is on one verifier, so more of those than of these do nothing for anybody.
    asked = max(worth[signal] for signal in worth if signal != "tokens")
    add = min(_whole(asked), max(_whole(requests), 1))
    return worth, Look(add, max(useful, add))


def slow(loads: Sequence[VerifierLoad], targets: VerifierTargets) -> bool:
    """Whether tokens follow each other more slowly than they should, drafts and all."""
    if targets.itl_s is None:
        return False
    running = sum(load.running for load in loads)
    return running > targets.itl_s * sum(load.tokens_s for load in loads)


def strongest(worth: Worth) -> Signal:
    """The signal that asks for most."""
    signal = max(worth, key=lambda s: worth[s])
    return signal if worth[signal] > 0.0 else "idle"


def _whole(replicas: float) -> int:
    return math.ceil(min(replicas, MOST))


def _mean(values: Sequence[float]) -> float:
    """Of those that are known."""
    known = [value for value in values if value > 0.0]
    return sum(known) / len(known) if known else 0.0


def _over(amount: float, capacity: float) -> float:
    return amount / capacity if capacity > 0.0 else 0.0
