"""The acceptance rules for sampled requests, all lossless (DESIGN §5). Greedy requests have no
choice: whatever the rule, a draft is accepted while it is the argmax."""

from __future__ import annotations

from typing import Literal

Rule = Literal["coupled", "rejection", "block"]
DEFAULT: Rule = "coupled"


def weighs_laws(rule: Rule) -> bool:
    """Whether a draft is accepted by the ratio of two laws, not by equality with a token that is
    fixed beforehand. Then nobody may look at a draft before it is decided: a length, a wait or a
    choice of block that depends on the drafted token changes the law of what is written (S16)."""
    return rule != "coupled"
