"""Legs: what stands side by side in one run.

standard                     the no-speculation leg; always there (law L6)
suffix:4                     mechanism and the most drafts, D; drafters are remote
suffix:4!                    always D, whatever the policy would do
suffix:4@colocated           the drafter inside the verifier
draft_model=smollm2:3        mechanism=model where the mechanism needs one
dspark+suffix:4              suffix decoding beside a drafter that computes
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from pydantic import ValidationError

from cluster.bench.errors import BenchError
from cluster.config import Method, SpeculativeConfig

Placement = Literal["remote", "colocated"]
STANDARD_NAME = "standard"
MAX_DEPTH = 32
FORM = "standard, or MECHANISM[+suffix][=MODEL]:D[!][@remote|@colocated], as in suffix:4@colocated"
BESIDE = "+suffix"


@dataclass(frozen=True, slots=True)
class Leg:
    """One way to decode. depth 0 is standard decode and names no mechanism.

    mechanism "served": whatever the server that was attached to drafts with. suffix: suffix
    decoding beside it. always: D is no most, every step drafts so many.
    """

    name: str
    mechanism: str = ""
    model: str | None = None
    placement: Placement | None = None
    depth: int = 0
    suffix: bool = False
    always: bool = False

    @property
    def standard(self) -> bool:
        return self.depth == 0

    @property
    def server(self) -> str:
        """Legs of one server differ in D alone; standard decode has one without drafters, and
        whether D is the most or what is always drafted is a server's own way."""
        if self.standard:
            return STANDARD_NAME
        model = f"={self.model}" if self.model else ""
        beside = BESIDE if self.suffix else ""
        always = "!" if self.always else ""
        return f"{self.mechanism}{beside}{model}{always}@{self.placement}"


STANDARD = Leg(STANDARD_NAME)
ATTACHED = "served"


def parse_legs(text: str, *, attached: bool = False) -> tuple[Leg, ...]:
    """Comma-separated legs, the standard one first whether it was named or not.

    attached: the server exists already, so a leg is standard or served:D. Raises BenchError.
    """
    words = [word.strip() for word in text.split(",") if word.strip()]
    parse = _attached_leg if attached else _leg
    legs = dict.fromkeys([STANDARD, *(parse(word) for word in words)])
    if len(legs) == 1:
        raise BenchError(f"--legs: nothing to compare with standard decode; a leg is {FORM}")
    return tuple(legs)


def servers_of(legs: Sequence[Leg]) -> dict[str, tuple[Leg, ...]]:
    """Legs by the server that they share."""
    groups: dict[str, tuple[Leg, ...]] = {}
    for leg in legs:
        groups[leg.server] = (*groups.get(leg.server, ()), leg)
    return groups


def speculative_config(legs: Sequence[Leg]) -> SpeculativeConfig | None:
    """The configuration of the server that these legs share; D up to the deepest of them.

    Nothing is kept across requests: a prompt that comes again would be drafted from its own
    former answer, and the figure would be about the benchmark (pitfall S58).
    """
    first = legs[0]
    if first.standard:
        return None
    try:
        return SpeculativeConfig.model_validate(
            {
                "method": first.mechanism,
                "model": first.model,
                "placement": first.placement,
                "num_speculative_tokens": max(leg.depth for leg in legs),
                "suffix_decoding_max_cached_requests": 0,
                "enable_suffix_decoding": first.suffix,
                "adaptive": not first.always,
            }
        )
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]["msg"].removeprefix("Value error, ")
        raise BenchError(f"--legs: {first.name}: {fault}; a leg is {FORM}") from None


def _leg(word: str) -> Leg:
    if word == STANDARD_NAME:
        return STANDARD
    text, at, placement = word.partition("@")
    if not at:
        placement = "remote"
    if placement not in get_args(Placement):
        raise BenchError(f"--legs: {word!r}: {_close(placement, get_args(Placement), 'placement')}")
    what, depth = _depth(word, text.removesuffix("!"))
    always = text.endswith("!")
    named, _, model = what.partition("=")
    mechanism, suffix = named.removesuffix(BESIDE), named.endswith(BESIDE)
    if mechanism not in get_args(Method):
        known = (*get_args(Method), STANDARD_NAME)
        raise BenchError(f"--legs: {word!r}: {_close(mechanism, known, 'mechanism')}")
    name = f"{what}:{depth}{'!' if always else ''}@{placement}"
    leg = Leg(name, mechanism, model or None, placement, depth, suffix, always)  # type: ignore[arg-type]
    speculative_config([leg])
    return leg


def _attached_leg(word: str) -> Leg:
    if word == STANDARD_NAME:
        return STANDARD
    what, depth = _depth(word, word)
    if what != ATTACHED:
        raise BenchError(
            f"--legs: {word!r}: with --attach a leg is standard or {ATTACHED}:D, for the server's "
            "mechanism is its own"
        )
    return Leg(f"{ATTACHED}:{depth}", ATTACHED, None, None, depth)


def _depth(word: str, text: str) -> tuple[str, int]:
    """What stands before the last colon, and D behind it."""
    what, colon, digits = text.rpartition(":")
    if not colon or not what:
        raise BenchError(f"--legs: {word!r} has no draft length; a leg is {FORM}")
    if not (digits.isascii() and digits.isdigit() and 1 <= int(digits[:4]) <= MAX_DEPTH):
        raise BenchError(
            f"--legs: {word!r}: D must be 1 to {MAX_DEPTH}, not {digits[:20]!r} "
            f"(D = 0 is the leg {STANDARD_NAME})"
        )
    return what, int(digits)


def _close(given: str, known: Sequence[str], what: str) -> str:
    close = difflib.get_close_matches(given, known, n=1)
    hint = f"; did you mean {close[0]!r}?" if close else ""
    return f"unknown {what} {given[:40]!r}{hint} Known: {', '.join(known)}"
