"""Rounds over a real server on loopback."""

from __future__ import annotations

import pytest
import torch

from actors.exchange.gathering import Patience
from actors.exchange.pool import PortOptions
from tests.unit.actors.exchange.helpers import (
    Engine,
    ToyDrafter,
    View,
    continuation,
    ported,
    serving,
    tapped,
    wait_for,
)


def make_views(count: int, rows: int = 0, columns: int = 6) -> list[View]:
    """Requests of different lengths, with random bf16 features of so many rows."""
    generator = torch.Generator().manual_seed(0)
    return [
        View(
            f"r{i}",
            [(7 * i + j) % 97 for j in range(1 + i % 5)],
            rows=torch.randn(rows, columns, generator=generator).bfloat16() if rows else None,
        )
        for i in range(count)
    ]


def test_a_drafter_that_knows_the_target_is_always_right_over_the_wire() -> None:
    drafter = ToyDrafter()
    with serving(drafter) as endpoint, ported(endpoint) as port:
        engine = Engine(port)
        engine.start(*make_views(5))
        for _ in range(6):
            assert engine.step().missing == {}
        assert engine.drafted == 5 * 4 * 6
        assert engine.accepted == engine.drafted
        for view in engine.views.values():
            prompt = view.tokens[: view.prompt_len]
            assert tuple(view.tokens) == (
                *prompt,
                *continuation(prompt, len(view.tokens) - len(prompt)),
            )
        engine.stop()
        assert drafter.wait_empty()
