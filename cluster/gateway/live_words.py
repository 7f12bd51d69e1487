"""What the words on the live page mean, in a sentence each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from cluster.gateway.cells import OTHER
from policies.choice_reasons import MEANING

WORDS: Final[Mapping[str, str]] = {
    "drafted": "a draft was verified",
    "configured": "D is as configured, and no choice is made",
    "client": "the client asked for standard decode",
    "limit": "the request has one token left to write",
    "policy": "the policy asked for standard decode",
    "late": "the block had not come when waiting for it no longer paid",
    "stale": "the block that came was drafted on other tokens",
    "cold": "the drafter has not read the request's text, or its features, yet",
    "fault": "the drafter failed on this request, and is asked again after a pause",
    "overloaded": "the drafter has no room for this request",
    "isolated": "the drafter was silent or kept failing, and rests for a while",
    "context": "the request has outgrown what the drafter can read",
    "depth-0": "nothing was asked of the drafter",
    "empty": "the drafter had nothing to propose",
    "evicted": "the request lost its KV blocks to others and is computed anew",
    OTHER: "a reason that this gateway does not know",
    **dict[str, str](MEANING.items()),
}
"""By the reason of a decision, of a plan or of a round without a draft. Every one that there is."""
