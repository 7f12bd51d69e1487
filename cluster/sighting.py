"""Who runs, as the verifiers and the policy see it, and what has been done so far."""

from __future__ import annotations

from dataclasses import dataclass

from pilotfish import Status


@dataclass(frozen=True, slots=True)
class Sighting:
    """links_up, sent, received (frames), used, late, stale (blocks): of remote drafters, as the
    verifiers see them. The seconds are sums since the engines started: steps, of them the model's
    forward, choosing tokens and waiting for blocks; drafting and the whole way of the blocks that
    came.
    """

    verifier_pids: tuple[int, ...] = ()
    drafter_pids: tuple[int, ...] = ()
    links_up: int = 0
    sent: int = 0
    received: int = 0
    used: int = 0
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
        sent=sum(link.frames_sent for link in links),
        received=sum(link.frames_received for link in links),
        used=sum(link.blocks_used for link in links),
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
