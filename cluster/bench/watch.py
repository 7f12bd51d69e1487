"""Who was alive: a leg whose drafter did not draft is refused, not reported (law L6)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cluster.bench.legs import Leg
from cluster.bench.sample import Sample, served
from pilotfish import Status


@dataclass(frozen=True, slots=True)
class Sighting:
    """A server before or after a cell.

    links_up, received: of remote drafters, as the verifiers see them. The seconds are sums since
    the engines started: steps, of them the model's forward, choosing tokens and waiting for blocks;
    drafting and the whole way of the blocks that came.
    """

    verifier_pids: tuple[int, ...] = ()
    drafter_pids: tuple[int, ...] = ()
    links_up: int = 0
    received: int = 0
    late: int = 0
    stale: int = 0
    steps: int = 0
    busy_s: float = 0.0
    forward_s: float = 0.0
    sample_s: float = 0.0
    wait_s: float = 0.0
    blocks: int = 0
    draft_s: float = 0.0
    block_s: float = 0.0


def sighting(status: Status) -> Sighting:
    engines = [verifier.engine for verifier in status.verifiers]
    links = [link for verifier in status.verifiers for link in verifier.links]
    return Sighting(
        verifier_pids=tuple(sorted(v.pid for v in status.verifiers)),
        drafter_pids=tuple(sorted(d.pid for d in status.drafters)),
        links_up=sum(link.up for link in links),
        received=sum(link.frames_received for link in links),
        late=sum(link.blocks_late for link in links),
        stale=sum(link.blocks_stale for link in links),
        steps=sum(engine.steps for engine in engines),
        busy_s=sum(engine.busy_s for engine in engines),
        forward_s=sum(engine.forward_s for engine in engines),
        sample_s=sum(engine.sample_s for engine in engines),
        wait_s=sum(engine.wait_s for engine in engines),
        blocks=sum(link.blocks_answered for link in links),
        draft_s=sum(link.draft_s for link in links),
        block_s=sum(link.block_s for link in links),
    )


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
    if not drafted:
        reasons = sorted({reason for sample in answered for reason in sample.reasons})
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
