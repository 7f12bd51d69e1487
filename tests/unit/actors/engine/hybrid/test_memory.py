"""A place's state is that of the request's tokens, whatever happened there before (law L1)."""

from __future__ import annotations

import random
from collections.abc import Iterable

import pytest
import torch

from actors.engine.errors import EngineError
from actors.engine.hybrid.convolution import convolve
from actors.engine.hybrid.delta import Rows, delta_rule
from actors.engine.hybrid.memory import NOTED_ROWS, PIECE, Compute, LayerStates, Tensors
from actors.engine.state import Convolution, GatedDelta, Recurrent

SPECS: dict[str, Recurrent] = {
    "convolution": Convolution(channels=3, kernel=3),
    "delta": GatedDelta(key_heads=1, value_heads=2, key_dim=3, value_dim=2, kernel=2),
}


def rows_of(tokens: Iterable[int]) -> dict[str, torch.Tensor]:
    """Inputs that follow from the tokens alone."""
    drawn = [
        torch.randn(16, generator=torch.Generator().manual_seed(t), dtype=torch.float64)
        for t in tokens
    ]
    return {"inputs": torch.stack(drawn)}


def convolution(carried: Tensors, rows: Tensors) -> tuple[torch.Tensor, Tensors]:
    inputs = rows["inputs"][:, :3]
    weight = torch.tensor([[[0.5, -1.0, 2.0]]], dtype=torch.float64).expand(3, 1, 3)
    return convolve(inputs, carried["window"], weight, None), {"inputs": inputs}


def delta(carried: Tensors, rows: Tensors) -> tuple[torch.Tensor, Tensors]:
    inputs = rows["inputs"][:, :10]
    weight = torch.tensor([[[0.5, 1.0]]], dtype=torch.float64).expand(10, 1, 2)
    mixed = convolve(inputs, carried["window"], weight, None)
    q, k, v = mixed[:, None, :3], mixed[:, None, 3:6], mixed[:, 6:].unflatten(1, (2, 2))
    scalars = rows["inputs"][:, 12:]
    done = delta_rule(
        Rows(q, k, v, -scalars[:, :2].square() / 8, scalars[:, 2:].sigmoid()), carried["memory"]
    )
    noted = dict(zip(("keys", "writes", "decay"), done[1:], strict=True))
    return done[0], {"inputs": inputs, **noted}


COMPUTE: dict[str, Compute] = {"convolution": convolution, "delta": delta}


def make(kind: str, places: int = 2) -> LayerStates:
    return LayerStates(SPECS[kind], places, torch.float64, "cpu")


def from_scratch(kind: str, tokens: list[int], last: int) -> torch.Tensor:
    """Outputs of the last rows, of all tokens computed one by one at a place of their own."""
    states, compute = make(kind), COMPUTE[kind]
    outputs = [states.run(0, i, rows_of([token]), compute) for i, token in enumerate(tokens)]
    return torch.cat(outputs)[-last:]


@pytest.mark.parametrize("kind", SPECS)
@pytest.mark.parametrize("seed", range(8))
def test_the_state_is_that_of_the_tokens_before_the_first_row(kind: str, seed: int) -> None:
    """Prompts in pieces of any length, drafts kept in any part, steps that run twice, requests
    that end or begin again, two places in turn."""
    rng = random.Random(seed)
    states = make(kind)
    texts: list[list[int]] = [[], []]  # of which the state is known
    for _ in range(60):
        place = rng.randrange(2)
        text = texts[place]
        if rng.random() < 0.08 or len(text) > 200:
            text.clear()  # another request, or this one preempted and begun again
        count = rng.choice([1, 2, 5, NOTED_ROWS, NOTED_ROWS + 1, PIECE, PIECE + 9])
        new = [rng.randrange(10**6) for _ in range(count)]
        if rng.random() < 0.3:
            # A step that fails after this layer, with other rows, is run again.
            other = rows_of(rng.randrange(10**6) for _ in range(rng.choice([1, 3, 40])))
            states.run(place, len(text), other, COMPUTE[kind])
        outputs = states.run(place, len(text), rows_of(new), COMPUTE[kind])
        expected = from_scratch(kind, text + new, count)
        assert (outputs - expected).abs().max() < 1e-12
        text += new if count > NOTED_ROWS else new[: rng.randint(1, count)]


@pytest.mark.parametrize("kind", SPECS)
def test_rows_that_were_never_computed_are_missed(kind: str) -> None:
    states = make(kind)
    with pytest.raises(EngineError, match="no state before row 3"):
        states.run(0, 3, rows_of([1]), COMPUTE[kind])
    states.run(0, 0, rows_of([1, 2, 3]), COMPUTE[kind])
    with pytest.raises(EngineError, match="place 1 has no state before row 3"):
        states.run(1, 3, rows_of([1]), COMPUTE[kind])
    with pytest.raises(EngineError, match="no state before row 4"):
        states.run(0, 4, rows_of([1]), COMPUTE[kind])
    states.run(0, 2, rows_of([4]), COMPUTE[kind])
    with pytest.raises(EngineError, match="no state before row 1"):
        states.run(0, 1, rows_of([1]), COMPUTE[kind])  # what is folded in stays in


@pytest.mark.parametrize("kind", SPECS)
def test_what_a_failed_step_wrote_is_never_read(kind: str) -> None:
    """Not even when the text gets as far as the failed step would have brought it."""
    states, compute = make(kind), COMPUTE[kind]
    states.run(0, 0, rows_of(range(3)), compute)
    states.run(0, 3, rows_of(range(100, 140)), compute)  # of a step that failed later on
    states.run(0, 3, rows_of(range(3, 20)), compute)
    states.run(0, 20, rows_of(range(20, 37)), compute)
    states.run(0, 37, rows_of(range(37, 43)), compute)
    outputs = states.run(0, 43, rows_of([43]), compute)
    assert (outputs - from_scratch(kind, list(range(44)), 1)).abs().max() < 1e-12


@pytest.mark.parametrize("kind", SPECS)
def test_a_blank_state_passes_for_any_length(kind: str) -> None:
    states = make(kind)
    states.run(0, 0, rows_of([1, 2, 3]), COMPUTE[kind])
    states.clear(0, seen=7)
    outputs = states.run(0, 7, rows_of([5]), COMPUTE[kind])
    assert torch.equal(outputs, from_scratch(kind, [5], 1))
