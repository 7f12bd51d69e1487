"""What one verifier can do in standard decode and still keep its promises.

Drafting is spent before replicas are added: as a batch grows its D falls, and at D = 0 a step costs
the least that it can. Only a load that even such steps would be too slow for needs another replica,
so capacity is counted without drafts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Capacity:
    """batch: requests that a step decodes in time. tokens_s: what is written with so many;
    prompt_tokens_s: what is read, doing nothing else. 0: unknown, nothing is concluded from it."""

    batch: float = 0.0
    tokens_s: float = 0.0
    prompt_tokens_s: float = 0.0


def capacity(
    step_s: Callable[[float], float],
    *,
    itl_s: float | None,
    most: float,
    prompt_rows: int,
) -> Capacity:
    """Of a verifier whose steps of so many requests take `step_s` at D = 0, never less for more.

    itl_s: what a step may take, so that tokens follow each other no slower; None bounds nothing.
    most: requests at which it is full whatever steps take. prompt_rows: of a step that only reads.
    A target that one request alone misses is not met by more replicas, so the least batch is 1.
    """
    batch = most if itl_s is None else _largest(step_s, itl_s, most)
    return Capacity(batch, batch / step_s(batch), prompt_rows / step_s(float(prompt_rows)))


def _largest(step_s: Callable[[float], float], limit_s: float, most: float) -> float:
    """The largest whole number of requests up to `most` whose step is within the limit."""
    if step_s(most) <= limit_s:
        return most
    low, high = 1, max(1, int(most))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if step_s(float(middle)) <= limit_s else (low, middle - 1)
    return float(low)
