"""What drafting must bring to pay, and what it brings. AL: tokens emitted a round, 1 … 1 + D."""

from __future__ import annotations

import math


def expected_tokens(acceptance: float, depth: int) -> float:
    """AL where each drafted token is accepted with the same chance: 1 + a + … + a^D."""
    return math.fsum(acceptance**k for k in range(depth + 1))


def acceptance_for(tokens: float, depth: int) -> float | None:
    """The inverse: the chance that brings AL = `tokens` at this depth; None where none does."""
    if tokens <= 1.0:
        return 0.0
    if tokens > 1 + depth:
        return None
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if expected_tokens(middle, depth) < tokens else (low, middle)
    return high


def speedup(
    tokens: float, target_s: float, draft_s: float, verify_s: float, wire_s: float = 0.0
) -> float:
    """AL · T_target / (T_draft + T_wire + T_verify)."""
    return tokens * target_s / (draft_s + wire_s + verify_s)


def break_even(target_s: float, draft_s: float, verify_s: float, wire_s: float = 0.0) -> float:
    """The AL at which a round is worth exactly the standard steps it replaces."""
    return (draft_s + wire_s + verify_s) / target_s


def serial_speedup(tokens: float, ratio: float, depth: int) -> float:
    """AL / (1 + ρ·D): a drafter that runs token by token at ρ = L_draft/L_target, where verifying
    costs what a standard step does. One-pass drafters must not be put into it."""
    return tokens / (1.0 + ratio * depth)
