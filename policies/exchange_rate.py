"""How often verifiers exchange with the policy actor: once a second, and less often where they are
so many that it would do nothing else. An exchange takes a process of Ray Serve some milliseconds,
nearly all of it the call's."""

from __future__ import annotations

import math

MOST_PER_S = 128.0
"""Of all verifiers together, while all are busy."""
IDLE = 2.0
"""A verifier without requests exchanges so many times more rarely: nobody drafts for it."""
MISSED = 5.0
"""Exchanges after which a verifier is taken to be gone."""


def pause_s(verifiers: int) -> float:
    """Between two exchanges of a busy verifier; whole seconds, so that it seldom changes."""
    return float(max(1, math.ceil(verifiers / MOST_PER_S)))


def forget_s(verifiers: int) -> float:
    """After so long without a word a verifier is gone."""
    return MISSED * IDLE * pause_s(verifiers)
