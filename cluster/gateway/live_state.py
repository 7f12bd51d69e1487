"""What the live page shows, as plain data: null is what is not known, and never a nought."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from cluster.gateway.answers import Json
from cluster.gateway.cohort_counts import Delivered
from cluster.gateway.decision_figures import NONE, Newest
from cluster.gateway.live_words import WORDS
from cluster.gateway.metrics import GatewayMetrics
from pilotfish.v1 import control_pb2 as pb


@dataclass(frozen=True, slots=True)
class Heard:
    """What engines said, and how long ago; 0 s is now."""

    status: pb.Status
    age_s: float


def live_state(
    model: str, metrics: GatewayMetrics, heard: Heard | None, *, speculates: bool
) -> Json:
    """By cohort and by drafter. heard: None before engines were heard of for the first time."""
    figures = metrics.engines.decisions
    newest, delivered = figures.newest, metrics.cohorts.delivered()
    alarms = {labels[0]: cell.value for labels, cell in figures.alarms.cells()}
    status = pb.Status() if heard is None else heard.status

    def row(cohort: str) -> Json:
        was, brought = newest.get(cohort, Newest()), delivered.get(cohort, Delivered())
        since_s, ratio = was.since_s, was.ratio or (None, None, None)
        return {
            "cohort": cohort,
            "decisions": _decided(was) or _planned(cohort, brought, status.snapshot),
            # The most that may have passed since they were made; null when that may be any time.
            "decided_s": None if since_s is None else max(0.0, figures.clock() - since_s),
            **dict(zip(("ratio", "ratio_low", "ratio_high"), ratio, strict=True)),
            **_delivered(brought),
            "changes": int(alarms.get(cohort, 0)),
        }

    return {
        "model": model,
        "age_s": None if heard is None else heard.age_s,
        "policy": status.HasField("snapshot"),
        "speculates": speculates,
        **_engines(None if heard is None else status.verifiers),
        "words": dict(WORDS),
        "cohorts": [row(cohort) for cohort in sorted(newest.keys() | delivered.keys())],
        "rounds": metrics.delivered_rounds(),
        "drafters": _drafters(status.verifiers),
    }


def _engines(verifiers: Sequence[pb.VerifierStatus] | None) -> Json:
    """All of them together. kv_usage: 1 is all blocks of the KV cache."""
    if verifiers is None:
        return dict.fromkeys(("verifiers", "running", "waiting", "kv_usage"))
    blocks = sum(v.total_blocks for v in verifiers)
    held = blocks - sum(v.free_blocks for v in verifiers)
    return {
        "verifiers": len(verifiers),
        "running": sum(v.running for v in verifiers),
        "waiting": sum(v.waiting for v in verifiers),
        "kv_usage": held / blocks if blocks else None,
    }


def _decided(newest: Newest) -> list[Json]:
    """By falling share."""
    return [
        {
            "mechanism": None if mechanism == NONE else mechanism,
            "placement": None if placement == NONE else placement,
            "depth": newest.depths.get(mechanism, 0),
            "reason": reason,
            "share": count / newest.decisions.total(),
        }
        for (mechanism, placement, reason), count in newest.decisions.most_common()
    ]


def _planned(cohort: str, delivered: Delivered, snapshot: pb.PolicySnapshot) -> list[Json]:
    """Where engines decide nothing the plan is all there is: D as configured, by the mechanism
    that has drafted."""
    plans = {plan.cohort: plan for plan in snapshot.cohorts}
    plan = plans.get(cohort, snapshot.fallback)
    if not plan.reason:
        return []
    used = delivered.drafts.most_common(1) if plan.depth else []
    mechanism, placement = used[0][0] if used else (plan.mechanism or None, None)
    planned: Json = {"mechanism": mechanism, "placement": placement, "depth": plan.depth}
    return [planned | {"reason": plan.reason, "share": None}]


def _delivered(delivered: Delivered) -> Json:
    """Since this gateway's start; a rate of nothing is null."""
    drafts = delivered.drafts.total()
    return {
        "drafts": drafts,
        "drafted": delivered.drafted,
        "accepted": delivered.accepted,
        "acceptance": delivered.accepted / delivered.drafted if delivered.drafted else None,
        "acceptance_length": 1 + delivered.accepted / drafts if drafts else None,
        "fallbacks": dict(delivered.fallbacks.most_common()),
    }


def _drafters(verifiers: Iterable[pb.VerifierStatus]) -> list[Json]:
    """Each as all verifiers see it: up at how many of them, and why not at the others. Blocks are
    counted since the links began; times are means of a block, in ms."""
    links: dict[tuple[str, str], list[pb.LinkStatus]] = {}
    for verifier in verifiers:
        for link in verifier.links:
            links.setdefault((link.mechanism, link.drafter), []).append(link)
    return [
        {
            "drafter": drafter,
            "mechanism": mechanism,
            "up": sum(link.up for link in seen),
            "links": len(seen),
            "troubles": _troubles(seen),
            **_blocks(seen),
        }
        for (mechanism, drafter), seen in sorted(links.items())
    ]


def _troubles(links: Iterable[pb.LinkStatus]) -> list[str]:
    """Each once; "down" alone where nothing more is known."""
    said = {
        ": ".join(part for part in (link.state or "down", link.detail) if part)
        for link in links
        if not link.up
    }
    return sorted(said)


def _blocks(links: list[pb.LinkStatus]) -> Json:
    answered = sum(link.blocks_answered for link in links)
    draft_s = sum(link.draft_s for link in links)
    wire_s = sum(link.block_s for link in links) - draft_s
    return {
        "used": sum(link.blocks_used for link in links),
        "late": sum(link.blocks_late for link in links),
        "stale": sum(link.blocks_stale for link in links),
        "draft_ms": 1e3 * draft_s / answered if answered else None,
        "wire_ms": 1e3 * max(0.0, wire_s) / answered if answered else None,
    }
