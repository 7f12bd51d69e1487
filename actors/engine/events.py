"""What the engine tells the outside after a step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from actors.engine.errors import EngineError

Finish = Literal["stop", "length", "abort", "error"]


@dataclass(frozen=True, slots=True)
class TokenEvent:
    """One step of one request. Tokens are committed and in order; drafted and accepted belong to
    the round that wrote them, trimmed like the tokens (accepted <= len(tokens)). `finish` is set
    on a request's last event and only there. Times in ns since the epoch."""

    request_id: str
    tokens: tuple[int, ...] = ()
    logprobs: tuple[Any, ...] = ()
    drafted: int = 0
    accepted: int = 0
    mechanism: str = ""
    reason: str = ""
    remote: bool = False
    finish: Finish | None = None
    stop_token: int | None = None
    error: EngineError | None = None
    trace: tuple[str, str] = ("", "")
    arrived_ns: int = 0
    admitted_ns: int = 0
    started_ns: int = 0
    ended_ns: int = 0
    first: bool = False  # the event with the first token this engine wrote
    cached_tokens: int = 0  # with the first: of the prompt, how many came from the prefix cache


@dataclass(slots=True)
class EngineStats:
    """Counts since start, for the policy, metrics and tests."""

    steps: int = 0
    rounds: int = 0
    drafted: int = 0
    accepted: int = 0
    invalid: int = 0
    tokens: int = 0
    prefill_tokens: int = 0
    preemptions: int = 0
    prefix_queries: int = 0  # tokens looked up in the prefix cache
    prefix_hits: int = 0  # of them, those that were there
    aborts: int = 0
    errors: int = 0
    step_s: float = 0.0  # moving average of a step without prompts
    forward_s: float = 0.0  # seconds inside the model forward, in all
    sample_s: float = 0.0  # seconds choosing tokens from logits, in all
    busy_s: float = 0.0  # seconds inside step(), in all
    wait_s: float = 0.0  # seconds waiting for blocks, in all
