"""What an engine says of its load, for whoever adds and removes verifiers. On its own thread."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from actors.engine.core import Engine
from policies import cost, estimate_cost


def load(engine: Engine) -> dict[str, Any]:
    """waiting_tokens: of requests without a place. standard_steps: (requests, seconds) of steps at
    D = 0, up to the rows of a forward; empty while nobody has measured them."""
    scheduler = engine.scheduler
    step_s = _step_s(engine)
    sizes = _sizes(scheduler.max_num_seqs, scheduler.max_rows)
    return {
        "waiting_tokens": scheduler.waiting.tokens,
        "standard_steps": [] if step_s is None else [(n, step_s(n)) for n in sizes],
    }


def _step_s(engine: Engine) -> Callable[[int], float] | None:
    steering, speculation = engine.steering, engine.speculation
    if steering is not None:
        measured = steering.policy.state.step_cost
        return lambda requests: estimate_cost.step_s(measured, requests, requests)
    if speculation is None:
        return None
    return lambda rows: cost.seconds(speculation.cost, rows)


def _sizes(requests: int, rows: int) -> list[int]:
    """Powers of two, and the ends."""
    powers = [1 << k for k in range(rows.bit_length())]
    return sorted({*(p for p in powers if p < rows), requests, rows})
