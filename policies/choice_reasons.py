"""Why a decision is what it is: the whole vocabulary. Traces, metrics and the live page use these
words and no others, so a label's values stay few."""

from __future__ import annotations

from typing import Final, Literal

Reason = Literal[
    "gain",
    "held",
    "no-gain",
    "no-evidence",
    "no-drafter",
    "off",
    "control",
    "slower",
    "probe",
    "wish",
    "end",
    "budget",
]

MEANING: Final[dict[Reason, str]] = {
    "gain": "this mechanism and depth have the highest expected tokens per second",
    "held": "another choice is better by too little, or not for long enough",
    "no-gain": "no drafted row is expected to pay: standard decode",
    "no-evidence": "too few blocks have been scored to say what drafting would bring",
    "no-drafter": "no drafter is up",
    "off": "speculation is configured off",
    "control": "a step of standard decode in the whole verifier, so that its time stays known",
    "slower": "the control measured this cohort under 0.98 of standard decode",
    "probe": "a step that is given away to learn",
    "wish": "the client's n_max bounds the depth",
    "end": "the request has fewer tokens left to write",
    "budget": "the step's rows are worth more elsewhere",
}
