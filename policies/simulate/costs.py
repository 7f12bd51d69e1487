"""Seconds of a verifier's step: from recorded figures, or from a roofline."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from policies.codesign.roofline import Machine, ragged
from policies.codesign.shape import Shape
from policies.cost import Cost, seconds


class Costs(Protocol):
    def step_s(self, rows: int, sequences: int, context: float) -> float:
        """Of a step of `rows` rows over `sequences` sequences with `context` tokens in all."""
        ...


@dataclass(frozen=True, slots=True)
class Recorded:
    """Measured seconds by rows, straight between them and on beyond the last; and what a token of
    context adds."""

    by_rows: Cost
    context_s: float = 0.0

    def step_s(self, rows: int, sequences: int, context: float) -> float:
        return seconds(self.by_rows, rows) + self.context_s * context


@dataclass(frozen=True, slots=True)
class Linear:
    """A fit: fixed_s + row_s·rows + context_s·context, as measured systems are often reported."""

    fixed_s: float
    row_s: float
    context_s: float = 0.0

    def step_s(self, rows: int, sequences: int, context: float) -> float:
        return self.fixed_s + self.row_s * rows + self.context_s * context


_GRAIN = 64
"""Tokens of mean context that the roofline is evaluated to; steps of a simulation repeat."""


@dataclass(frozen=True, slots=True)
class Roofline:
    """A model on a machine, remembered by (rows, sequences, mean context)."""

    shape: Shape
    machine: Machine
    _known: dict[tuple[int, int, int], float] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def step_s(self, rows: int, sequences: int, context: float) -> float:
        mean = round(context / max(sequences, 1) / _GRAIN)
        key = rows, sequences, mean
        if (known := self._known.get(key)) is None:
            step = ragged(self.shape, self.machine, rows, sequences, mean * _GRAIN)
            known = self._known[key] = step.total
        return known
