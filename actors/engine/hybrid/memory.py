"""The recurrent state of every running request in one layer, and its way back.

A place belongs to one running request. It has a state after some row p (`carried`), and what the
newest rows p+1 … p+n would change of it (`noted`). The next step says with its first row which of
them were kept: the state goes on to just before it, the rest is forgotten. So rollback is by length
alone, as with keys and values, nobody has to say what was rejected, and a step that failed can be
run again.

    p              p+n
    ├──────────────┤        state after p, n rows noted (an anchor and its draft)
    ├────────┐
             │              the next step begins at row s: p … s-1 are folded in, then
             ├─────────┤    rows s … are noted in their turn

A piece of a prompt has too many rows to note down; the state after it is kept beside the state
before it, in the place's other bank, so that this too can be run again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch

from actors.engine.errors import EngineError
from actors.engine.hybrid import convolution, delta
from actors.engine.state import MAX_DRAFT, Convolution, GatedDelta, Kept, Recurrent

Tensors = Mapping[str, torch.Tensor]
Compute = Callable[[Tensors, Tensors], tuple[torch.Tensor, Tensors]]
"""(state before, n rows) → outputs [n, …] and what of the rows is to be noted."""

NOTED_ROWS = MAX_DRAFT + 1  # an anchor and its draft
BANKS = 2
PIECE = 64
"""Rows computed at once: the delta rule's work within a piece grows with its square."""

_FOLD: dict[type[Recurrent], Callable[[Tensors, Tensors], dict[str, torch.Tensor]]] = {
    Convolution: convolution.fold,
    GatedDelta: delta.fold,
}


def exact_dtype(dtype: torch.dtype) -> torch.dtype:
    """Of what adds up over a whole text."""
    return dtype if dtype == torch.float64 else torch.float32


class LayerStates:
    """One recurrent layer's states, at `places` places.

    Law: the state a step begins with is a function of the request's tokens before its first row,
    whatever was drafted, rejected, run again or computed at this place before.
    """

    def __init__(self, spec: Recurrent, places: int, dtype: torch.dtype, device: str) -> None:
        def empty(kept: Kept, *front: int) -> torch.Tensor:
            own = exact_dtype(dtype) if kept.exact else dtype
            # Not zeroed: nothing is read before it is written (compare KVPool).
            return torch.empty(*front, *kept.shape, dtype=own, device=device)

        self._fold = _FOLD[type(spec)]
        self._carried = {n: empty(k, places, BANKS) for n, k in spec.carried.items()}
        self._noted = {n: empty(k, places, NOTED_ROWS) for n, k in spec.noted.items()}
        # Rows that each bank's state has seen; None: nothing that may be read.
        self._seen: list[list[int | None]] = [[None] * BANKS for _ in range(places)]
        self._bank = [0] * places  # that the noted rows follow
        self._rows = [0] * places  # noted

    def run(self, place: int, start: int, rows: Tensors, compute: Compute) -> torch.Tensor:
        """Outputs [n, …] of rows start … start+n-1 of the request at `place`; `rows`: tensors
        [n, …]. Raises EngineError when the rows before `start` have not been computed here."""
        carried = self._begin(place, start)
        count = next(iter(rows.values())).shape[0]
        if count <= NOTED_ROWS:
            outputs, noted = compute(carried, rows)
            for name, tensor in noted.items():
                self._noted[name][place, :count] = tensor
            self._rows[place] = count
            return outputs
        parts: list[torch.Tensor] = []
        for first in range(0, count, PIECE):
            piece = {name: tensor[first : first + PIECE] for name, tensor in rows.items()}
            outputs, noted = compute(carried, piece)
            carried = self._fold(carried, noted)
            parts.append(outputs)
        self._write(place, 1 - self._bank[place], carried, start + count)
        return torch.cat(parts)

    def clear(self, place: int, seen: int = 0) -> None:
        """A state of zeros, as before the text; seen: rows it passes for having seen, for who
        measures times and not texts."""
        self._seen[place] = [None] * BANKS
        for tensor in self._carried.values():
            tensor[place, 0] = 0
        self._seen[place][0] = seen
        self._bank[place] = self._rows[place] = 0

    def _begin(self, place: int, start: int) -> Tensors:
        """The state before row `start`; afterwards nothing is noted, and `_bank` has it."""
        if start == 0:
            self.clear(place)
        seen, bank, noted = self._seen[place], self._bank[place], self._rows[place]
        for other in range(BANKS):
            if (seen[other] or 0) > start:
                seen[other] = None  # of a step that failed
        if start in seen:
            self._bank[place] = bank = seen.index(start)
        else:
            past = start - (seen[bank] or 0)
            if seen[bank] is None or not 0 < past <= noted:
                raise EngineError(f"place {place} has no state before row {start}: {seen}, {noted}")
            rows = {name: tensor[place, :past] for name, tensor in self._noted.items()}
            self._write(place, bank, self._fold(self._at(place, bank), rows), start)
        self._rows[place] = 0
        return self._at(place, bank)

    def _at(self, place: int, bank: int) -> Tensors:
        return {name: tensor[place, bank] for name, tensor in self._carried.items()}

    def _write(self, place: int, bank: int, carried: Tensors, seen: int) -> None:
        self._seen[place][bank] = None  # in case this is interrupted
        for name, tensor in carried.items():
            self._carried[name][place, bank] = tensor
        self._seen[place][bank] = seen
