"""Where the time of rounds goes: drafting, the way there and back, verifying, waiting.

Sums of seconds since the start; divided by steps or blocks they are means. Drafting and verifying
run beside each other where drafters are remote, so they do not add up to the time that passed.
"""

from __future__ import annotations

from cluster.gateway.cells import Cells
from cluster.gateway.growth import Growth
from pilotfish.v1 import control_pb2 as pb

_Key = tuple[str, ...]


class TimeFigures:
    """Over all verifiers and their links to drafters."""

    def __init__(self, cells: Cells) -> None:
        self._engine = {
            "steps": cells.count("pilotfish:engine_steps", "Forward passes of the target."),
            "forward_s": cells.count(
                "pilotfish:verify_seconds", "Seconds in the target's forward passes."
            ),
            "sample_s": cells.count(
                "pilotfish:sample_seconds", "Seconds choosing tokens from logits."
            ),
            "wait_s": cells.count("pilotfish:wait_seconds", "Seconds steps waited for blocks."),
            "busy_s": cells.count("pilotfish:round_seconds", "Seconds in rounds, all of it."),
        }
        by = ("mechanism",)
        self._links = {
            "blocks": cells.table("pilotfish:draft_blocks", "Blocks that were timed.", by),
            "draft": cells.table(
                "pilotfish:draft_seconds", "Seconds drafters took to draft those blocks.", by
            ),
            "wire": cells.table(
                "pilotfish:wire_seconds",
                "Seconds those blocks took beyond that: the wire both ways, and queues.",
                by,
            ),
        }
        self._growth = Growth[_Key]()

    def update(self, status: pb.Status) -> None:
        for verifier in status.verifiers:
            totals: dict[_Key, float] = {
                (name,): float(getattr(verifier.engine, name)) for name in self._engine
            }
            for link in verifier.links:
                totals["blocks", link.drafter, link.mechanism] = float(link.blocks_answered)
                totals["draft", link.drafter, link.mechanism] = link.draft_s
                totals["wire", link.drafter, link.mechanism] = max(0.0, link.block_s - link.draft_s)
            for key, by in self._growth.since((verifier.verifier, verifier.pid), totals).items():
                self._add(key, by)

    def _add(self, key: _Key, by: float) -> None:
        if len(key) == 1:
            self._engine[key[0]].inc(by)
        else:
            self._links[key[0]].at(key[2]).inc(by)
