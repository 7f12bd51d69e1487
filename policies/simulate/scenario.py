"""What a simulation is told: texts, load, machines, ways to draft, and what goes wrong when.

Plain records in seconds, tokens and bytes; every one refuses what makes no sense when it is made.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Placement = Literal["remote", "colocated"]
Trouble = Literal["dead", "slow", "useless"]


class ScenarioError(ValueError):
    """A scenario that contradicts itself; one line."""


@dataclass(frozen=True, slots=True)
class Cohort:
    """Requests that are alike. prompt and output: tokens; spread: both vary by up to this share."""

    prompt: int = 256
    output: int = 128
    spread: float = 0.0

    def __post_init__(self) -> None:
        if self.prompt < 1 or self.output < 1 or not 0.0 <= self.spread < 1.0:
            raise ScenarioError("a cohort needs a prompt, an output, and a spread below 1")


@dataclass(frozen=True, slots=True)
class Way:
    """One way to draft: a mechanism at a placement, with `drafters` instances where it is remote.

    acceptance: by cohort, P(position k is accepted | those before it are), the last one holding on.
    found: by cohort, P(a block comes at all); model-free drafters often find nothing. A cohort
    that neither names is not drafted for. A block takes base_s + session_s for each session +
    token_s for each of its positions. feature_bytes: for each committed token, to the drafter.
    """

    placement: Placement
    acceptance: Mapping[str, tuple[float, ...]]
    found: Mapping[str, float] = field(default_factory=dict)
    max_depth: int = 8
    drafters: int = 1
    base_s: float = 0.0
    session_s: float = 0.0
    token_s: float = 0.0
    feature_bytes: float = 0.0

    def __post_init__(self) -> None:
        if self.max_depth < 1 or self.drafters < 1:
            raise ScenarioError("a way to draft needs a depth and a drafter")
        chances = [*self.found.values(), *(a for row in self.acceptance.values() for a in row)]
        if any(not 0.0 <= chance <= 1.0 for chance in chances):
            raise ScenarioError("acceptance and found are chances, from 0 to 1")
        if any(not row for row in self.acceptance.values()):
            raise ScenarioError("acceptance of a cohort names at least the first position")

    @property
    def remote(self) -> bool:
        return self.placement == "remote"

    def block_s(self, sessions: int, depth: int) -> float:
        """Seconds in which a drafter drafts for so many sessions at once."""
        if depth < 1 or sessions < 1:
            return 0.0
        return self.base_s + self.session_s * sessions + self.token_s * depth


@dataclass(frozen=True, slots=True)
class Phase:
    """From start_s on: clients that ask again when answered (closed loop), requests a second that
    come whatever happens (open loop, Poisson), by cohort."""

    start_s: float
    clients: Mapping[str, int] = field(default_factory=dict)
    rate: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Fault:
    """From at_s to until_s every drafter of a way, or the one named, is dead (answers nothing),
    slow (takes `factor` times as long) or useless (nothing it drafts is right)."""

    way: str
    kind: Trouble
    at_s: float = 0.0
    until_s: float = float("inf")
    drafter: int | None = None
    factor: float = 10.0


@dataclass(frozen=True, slots=True)
class Wire:
    """rtt_s: a round trip with an empty frame. bytes_s: of a stream, both ends' copying included.
    jitter: an exponential share of the round trip is added to it, on average."""

    rtt_s: float = 0.3e-3
    bytes_s: float = 1.1e9
    jitter: float = 0.0


@dataclass(frozen=True, slots=True)
class Scenario:
    """prompt_rows: rows of prompts that a step may take. max_num_seqs: running at once."""

    duration_s: float
    cohorts: Mapping[str, Cohort]
    ways: Mapping[str, Way]
    phases: tuple[Phase, ...]
    verifiers: int = 1
    max_num_seqs: int = 32
    prompt_rows: int = 512
    wire: Wire = field(default_factory=Wire)
    faults: tuple[Fault, ...] = ()
    seed: int = 0

    def __post_init__(self) -> None:
        if self.duration_s <= 0.0 or self.verifiers < 1 or self.max_num_seqs < 1:
            raise ScenarioError("a scenario lasts, and has a verifier with a place")
        if not self.phases:
            raise ScenarioError("a scenario needs a phase, or nobody asks anything")
        named = {c for p in self.phases for c in (*p.clients, *p.rate)}
        named |= {c for way in self.ways.values() for c in (*way.acceptance, *way.found)}
        if unknown := sorted(named - self.cohorts.keys()):
            raise ScenarioError(
                f"unknown cohort {', '.join(unknown)}; known: {', '.join(self.cohorts)}"
            )
        if lost := sorted({f.way for f in self.faults} - self.ways.keys()):
            raise ScenarioError(f"unknown way {', '.join(lost)}; known: {', '.join(self.ways)}")
