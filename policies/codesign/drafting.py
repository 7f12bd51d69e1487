"""What a mechanism costs to draft with, from its architecture (see the papers named beside each).

serial: one forward of the drafter for each drafted token; one-pass: one for the whole block;
model-free: looked up on the host. A drafter has one device of its own unless told otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from policies.codesign.roofline import Machine, forward
from policies.codesign.shape import Shape
from policies.devices import lookup

Kind = Literal["serial", "one-pass", "model-free"]

LOOKUP_SHARE = 0.006
"""Of the target's step: n-gram drafting in vLLM as measured for arXiv 2601.11580."""


@dataclass(frozen=True, slots=True)
class Mechanism:
    """model: what one forward computes (None: nothing). once: weights read once a round, the
    projection of the features. taps: hidden states of the target that it is conditioned on; 0 is
    none. linear: its first step is a linear map of them, which may run on the verifier.
    each: weights read for each drafted token beside the forwards (a light serial head)."""

    name: str
    kind: Kind
    model: Shape | None = None
    once: int = 0
    each: int = 0
    taps: int = 0
    linear: bool = False

    def draft_s(
        self, machine: Machine, sessions: int, depth: int, context: float, target_s: float
    ) -> float:
        """Seconds to draft `depth` tokens for each of `sessions`. target_s: of the target's step,
        which what is looked up on a host is measured by."""
        if depth <= 0:
            return 0.0
        if self.model is None:
            return LOOKUP_SHARE * target_s
        read = self.model.weight_bytes / machine.tp / machine.bandwidth
        light = (self.once + depth * self.each) * read
        light += depth * machine.reach.layer_s if self.each else 0.0
        if self.kind == "serial":
            step = forward(self.model, machine, sessions, 0, context, host=False)
            return machine.reach.host_s / 2 + depth * step.total + light
        whole = forward(self.model, machine, sessions, depth, context, host=False)
        return machine.reach.host_s / 2 + whole.total + light


def mechanisms(target: Shape, drafter: Shape | None = None) -> Mapping[str, Mechanism]:
    """All mechanisms for a target, by name; an external draft model only where one is given."""
    hidden = target.hidden
    head = replace(
        target,
        layers=1,
        windowed_layers=0,
        experts=None,
        latent=None,
        kv_heads=_divisor(target),
        intermediate=_dense_width(target),
        dtype="bf16",
        extra=0,
    )
    queries = head.head_dim * (head.heads + 2 * head.kv_heads)
    block = replace(head, layers=5)
    found = [
        # arXiv 2503.01840: one layer on [embedding, features], 3 taps, a vocabulary of 32k.
        Mechanism(
            "eagle3",
            "serial",
            replace(head, name="EAGLE-3", vocab=min(target.vocab, 32_000), extra=hidden * queries),
            once=3 * hidden * hidden,
            taps=3,
            linear=True,
        ),
        # DeepSeek-V3 report, arXiv 2412.19437: one layer like the target's own, its whole head.
        Mechanism(
            "mtp",
            "serial",
            replace(
                target,
                name="MTP",
                layers=1,
                windowed_layers=0,
                experts=replace(target.experts, dense_layers=0) if target.experts else None,
                extra=2 * hidden * hidden,
            ),
            taps=1,
        ),
        # arXiv 2602.06036: five layers over anchor and masks, 5 taps, the target's head.
        Mechanism(
            "dflash",
            "one-pass",
            replace(block, name="DFlash"),
            once=5 * hidden * hidden,
            taps=5,
            linear=True,
        ),
        # arXiv 2607.05147: the same, and a first-order head of rank 256 for each token.
        Mechanism(
            "dspark",
            "one-pass",
            replace(block, name="DSpark"),
            once=5 * hidden * hidden,
            each=2 * 256 * target.vocab,
            taps=5,
            linear=True,
        ),
        Mechanism("suffix", "model-free"),
    ]
    if drafter is not None:
        found.insert(0, Mechanism("draft_model", "serial", drafter))
    return {mechanism.name: mechanism for mechanism in found}


def chosen(names: str, known: Mapping[str, Mechanism]) -> list[Mechanism]:
    """Of a comma-separated list; an empty one is all. Raises UnknownNameError."""
    if not names.strip():
        return list(known.values())
    return [known[lookup("mechanism", name.strip(), known)] for name in names.split(",")]


def _divisor(target: Shape) -> int:
    """KV heads of a head: the target's; with latent attention, as many as give G = 4."""
    return max(1, target.heads // 4) if target.latent else target.kv_heads


def _dense_width(target: Shape) -> int:
    """A head's feed-forward part is plain: where the target routes, three times its width."""
    return target.intermediate or 3 * target.hidden
