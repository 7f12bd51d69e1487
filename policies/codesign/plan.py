"""The co-design calculator: a model on devices, and what that says of D and of drafters.

Everything here is arithmetic on peaks and shapes: a place to start measuring from. The server
measures its own costs and acceptance and chooses by those (DESIGN §9).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from policies.codesign import tiles
from policies.codesign.capacity import room, verifiers_per_drafter
from policies.codesign.drafting import Mechanism
from policies.codesign.gain import acceptance_for, break_even, expected_tokens, speedup
from policies.codesign.roofline import Machine, forward
from policies.codesign.shape import Shape
from policies.codesign.traffic import bits_a_second, features, round_bytes, wire_s

DEPTHS = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16)
"""Looked at beside the tile's edges: with usual acceptance the best D is among them."""
WORTH = 0.98
"""A share of the largest gain that is as good: a deeper block must bring more than that."""


@dataclass(frozen=True, slots=True)
class Question:
    """concurrencies: sequences of a step, ascending. acceptance: P(a drafted token is accepted),
    the same at every position. rtt_s and network: of the way to a remote drafter, seconds and
    bytes a second; rtt_s 0 with an infinite network is a drafter beside the target."""

    target: Shape
    machine: Machine
    drafter_machine: Machine
    mechanisms: Sequence[Mechanism]
    context: int = 2048
    concurrencies: Sequence[int] = (1, 8, 32, 128)
    acceptance: float = 0.7
    rtt_s: float = 0.3e-3
    network: float = 25e9 / 8


@dataclass(frozen=True, slots=True)
class Facts:
    """group: G of one rank. compute_bound: sequences from which a product of the model's width is
    compute-bound at D = 0. fits: sequences of the context that the KV cache has room for."""

    group: int
    tile: int
    first_guess: int
    candidates: tuple[int, ...]
    weights: int
    active_weights: int
    weight_bytes: float
    kv_bytes_per_token: float
    kv_room_bytes: float
    fits: int
    ridge: float
    compute_bound: float


@dataclass(frozen=True, slots=True)
class Verification:
    """One D at one concurrency. ratio: verify over target."""

    sequences: int
    depth: int
    gemm_rows: int
    gemm_intensity: float
    attention_intensity: float
    tiles: int
    verify_s: float
    ratio: float


@dataclass(frozen=True, slots=True)
class Drafting:
    """A mechanism at one D and concurrency, remote. needs: the acceptance that breaks even, None
    where none would. speedup: at the question's acceptance."""

    mechanism: str
    kind: str
    sequences: int
    depth: int
    draft_s: float
    wire_s: float
    break_even: float
    needs: float | None
    speedup: float


@dataclass(frozen=True, slots=True)
class Pool:
    """At the best D of a mechanism and concurrency. Bytes a round of all sessions by form of the
    features, and the network they need in bits a second."""

    mechanism: str
    sequences: int
    depth: int
    speedup: float
    verifiers_per_drafter: float
    raw_bytes: float
    projected_bytes: float
    fp8_bytes: float
    raw_bits_s: float
    fp8_bits_s: float


@dataclass(frozen=True, slots=True)
class Plan:
    facts: Facts
    verifications: tuple[Verification, ...]
    draftings: tuple[Drafting, ...]
    pools: tuple[Pool, ...]


def plan(question: Question) -> Plan:
    """Raises UnsupportedError where the model does not fit or compute on the devices."""
    facts = _facts(question)
    depths = sorted({0, *DEPTHS, *facts.candidates})
    verifications = [_verification(question, m, d) for m in question.concurrencies for d in depths]
    draftings = [
        _drafting(question, mechanism, sequences, depth)
        for mechanism in question.mechanisms
        for sequences in question.concurrencies
        for depth in depths
        if depth
    ]
    pools = [
        _pool(question, mechanism, sequences, draftings)
        for mechanism in question.mechanisms
        for sequences in question.concurrencies
    ]
    return Plan(facts, tuple(verifications), tuple(draftings), tuple(pools))


def best(draftings: Sequence[Drafting], mechanism: str, sequences: int) -> Drafting | None:
    """The least D within `WORTH` of the largest gain, as each further one must pay for itself; None
    where none gains anything: standard decode is the better choice."""
    found = [d for d in draftings if d.mechanism == mechanism and d.sequences == sequences]
    most = max((d.speedup for d in found), default=0.0)
    if most <= 1.0:
        return None
    enough = [d for d in found if d.speedup > 1.0 and d.speedup >= WORTH * most]
    return min(enough, key=lambda d: d.depth)


def falls_at(pools: Sequence[Pool], mechanism: str) -> int | None:
    """The concurrency at which D first falls below its best; None where it stays."""
    mine = [pool for pool in pools if pool.mechanism == mechanism]
    deepest = 0
    for pool in mine:
        if pool.depth < deepest:
            return pool.sequences
        deepest = max(deepest, pool.depth)
    return None


def _facts(q: Question) -> Facts:
    target, device = q.target, q.machine.device
    q.machine.check(target)
    space = room(target, q.machine)
    kv_heads = 1 if target.latent else max(1, target.kv_heads // q.machine.tp)
    group = max(1, target.heads // q.machine.tp // kv_heads)
    ridge = tiles.ridge(device.flops[target.dtype], device.bandwidth)
    return Facts(
        group,
        device.tile,
        tiles.first_guess(group, device.tile),
        tiles.candidates(group, device.tile),
        target.weights,
        target.active_weights,
        space.weights,
        target.kv_bytes_per_token,
        space.kv,
        space.sequences(target, q.context, q.machine.tp),
        ridge,
        tiles.compute_bound_rows(target.hidden, target.hidden, ridge, target.weight_bytes),
    )


def _verify_s(q: Question, sequences: int, depth: int) -> float:
    return forward(q.target, q.machine, sequences, depth, q.context).total


def _verification(q: Question, sequences: int, depth: int) -> Verification:
    kv_heads = 1 if q.target.latent else max(1, q.target.kv_heads // q.machine.tp)
    group = max(1, q.target.heads // q.machine.tp // kv_heads)
    rows, verify = tiles.gemm_rows(sequences, depth), _verify_s(q, sequences, depth)
    width = q.target.hidden
    return Verification(
        sequences,
        depth,
        rows,
        tiles.gemm_intensity(rows, width, width, q.target.weight_bytes),
        tiles.attention_intensity(group, depth),
        tiles.attention_tiles(group, depth, q.machine.device.tile),
        verify,
        verify / _verify_s(q, sequences, 0),
    )


def _drafting(q: Question, mechanism: Mechanism, sequences: int, depth: int) -> Drafting:
    target, verify = _verify_s(q, sequences, 0), _verify_s(q, sequences, depth)
    draft = mechanism.draft_s(q.drafter_machine, sequences, depth, q.context, target)
    tokens = expected_tokens(q.acceptance, depth)
    sent = features(q.target.hidden, mechanism.taps, mechanism.linear).projected
    wire = wire_s(round_bytes(sent, tokens, sequences, depth), q.rtt_s, q.network)
    even = break_even(target, draft, verify, wire)
    return Drafting(
        mechanism.name,
        mechanism.kind,
        sequences,
        depth,
        draft,
        wire,
        even,
        acceptance_for(even, depth),
        speedup(tokens, target, draft, verify, wire),
    )


def _pool(q: Question, mechanism: Mechanism, sequences: int, draftings: Sequence[Drafting]) -> Pool:
    found = best(draftings, mechanism.name, sequences)
    depth = found.depth if found else 0
    if found is None:
        return Pool(mechanism.name, sequences, 0, 1.0, float("inf"), 0.0, 0.0, 0.0, 0.0, 0.0)
    tokens = expected_tokens(q.acceptance, depth)
    round_s = found.draft_s + found.wire_s + _verify_s(q, sequences, depth)
    sizes = features(q.target.hidden, mechanism.taps, mechanism.linear)
    raw, projected, fp8 = (
        round_bytes(size, tokens, sequences, depth)
        for size in (sizes.raw, sizes.projected, sizes.fp8)
    )
    return Pool(
        mechanism.name,
        sequences,
        depth,
        found.speedup,
        verifiers_per_drafter(round_s, found.draft_s),
        raw,
        projected,
        fp8,
        bits_a_second(raw, round_s),
        bits_a_second(fp8, round_s),
    )
