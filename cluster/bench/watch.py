"""Who was alive: a leg whose drafter did not draft is refused, not reported (law L6)."""

from __future__ import annotations

from collections.abc import Sequence

from cluster.bench.legs import Leg
from cluster.bench.sample import Sample, served
from cluster.sighting import Sighting

NO_GAIN = "no-gain"
"""Blocks were offered, and none was worth verifying: that is what the leg does."""


def refusal(leg: Leg, before: Sighting, after: Sighting, samples: Sequence[Sample]) -> str | None:
    """Why a cell of this leg says nothing about the leg; None when it does."""
    answered = served(samples)
    if not answered:
        errors = sorted({sample.error for sample in samples})
        return f"no request was answered: {errors[0] if errors else 'none was sent'}"
    if before.verifier_pids != after.verifier_pids:
        return f"a verifier was replaced: {_became(before.verifier_pids, after.verifier_pids)}"
    drafted = sum(sample.drafted for sample in answered)
    if leg.standard:
        return f"standard decode verified {drafted} drafted tokens" if drafted else None
    if leg.placement == "remote" or (leg.placement is None and before.drafter_pids):
        absent = _absent(before, after)
        if absent is not None:
            return absent
    reasons = sorted({reason for sample in answered for reason in sample.reasons})
    if not drafted and NO_GAIN not in reasons:
        return f"nothing was drafted ({', '.join(reasons) or 'no round could have been'})"
    remote = sum(sample.remote_accepted for sample in answered)
    accepted = sum(sample.accepted for sample in answered)
    if leg.placement == "colocated" and remote:
        return f"{remote} accepted tokens came over the wire to a co-located leg"
    if leg.placement == "remote" and remote < accepted:
        return f"{accepted - remote} accepted tokens of a remote leg did not come over the wire"
    return None


def _absent(before: Sighting, after: Sighting) -> str | None:
    """Why the remote drafter was not there all the time."""
    for when, seen in (("before", before), ("after", after)):
        if not seen.drafter_pids:
            return f"no drafter was registered {when} the run"
        if not seen.links_up:
            return f"no verifier was connected to a drafter {when} the run"
    if before.drafter_pids != after.drafter_pids:
        return f"a drafter was replaced: {_became(before.drafter_pids, after.drafter_pids)}"
    if after.received <= before.received:
        return "no frame came from a drafter"
    return None


def _became(before: tuple[int, ...], after: tuple[int, ...]) -> str:
    before_text, after_text = (", ".join(map(str, pids)) or "none" for pids in (before, after))
    return f"pid {before_text} became {after_text}"
