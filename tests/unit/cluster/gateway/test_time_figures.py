"""Seconds of drafting, wire and verifying, summed over engines and links, to /metrics."""

from __future__ import annotations

from cluster.gateway.cells import Cells
from cluster.gateway.time_figures import TimeFigures
from pilotfish.v1 import control_pb2 as pb


def report(verifier: str, *links: pb.LinkStatus, **engine: float) -> pb.VerifierStatus:
    return pb.VerifierStatus(
        verifier=verifier, pid=1, links=links, engine=pb.EngineTotals(**engine)
    )


def link(
    drafter: str, mechanism: str, blocks: int, draft_s: float, block_s: float
) -> pb.LinkStatus:
    return pb.LinkStatus(
        drafter=drafter,
        mechanism=mechanism,
        blocks_answered=blocks,
        draft_s=draft_s,
        block_s=block_s,
    )


def shown(*looks: list[pb.VerifierStatus]) -> dict[str, float]:
    """Every series after these looks; a label value behind the name."""
    cells = Cells({})
    figures = TimeFigures(cells)
    for reports in looks:
        figures.update(pb.Status(verifiers=reports))
    return {
        "".join([family.name.removeprefix("pilotfish:"), *sample.labels.values()]): sample.value
        for family in cells.collect()
        for sample in family.samples
    }


def test_seconds_are_summed_by_mechanism_over_verifiers_and_their_drafters() -> None:
    after = shown(
        [
            report(
                "a",
                link("d0", "suffix", 4, 0.5, 0.75),
                link("d1", "suffix", 2, 0.25, 0.25),
                steps=10,
                forward_s=2.0,
                sample_s=0.5,
                wait_s=0.125,
                busy_s=3.0,
            ),
            report("b", link("d0", "dspark", 1, 1.0, 3.0), steps=5, forward_s=1.0),
        ]
    )
    assert after == {
        "engine_steps": 15,
        "verify_seconds": 3.0,
        "sample_seconds": 0.5,
        "wait_seconds": 0.125,
        "round_seconds": 3.0,
        "draft_blockssuffix": 6,
        "draft_secondssuffix": 0.75,
        "wire_secondssuffix": 0.25,
        "draft_blocksdspark": 1,
        "draft_secondsdspark": 1.0,
        "wire_secondsdspark": 2.0,
    }


def test_a_drafter_that_leaves_keeps_its_seconds_counted() -> None:
    first = [report("a", link("d0", "suffix", 4, 0.5, 0.75), steps=1)]
    second = [report("a", link("d1", "suffix", 1, 0.25, 0.5), steps=2)]
    after = shown(first, second, second)
    assert (after["draft_blockssuffix"], after["engine_steps"]) == (5, 2)
    assert (after["draft_secondssuffix"], after["wire_secondssuffix"]) == (0.75, 0.5)
