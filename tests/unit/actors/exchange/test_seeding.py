"""What a drafter is told when a session is opened on it, and who waits meanwhile: nobody."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import torch

from actors.contracts import OpenSession
from actors.exchange.link import Endpoint
from tests.unit.actors.exchange.helpers import (
    Engine,
    ToyDrafter,
    View,
    ported,
    serving,
    step_until,
    tapped,
)

ROWS = torch.randn(200, 8, generator=torch.Generator().manual_seed(0)).bfloat16()


class Recorder(ToyDrafter):
    """Keeps every OpenSession."""

    def __init__(self, **info: object) -> None:
        super().__init__(**info)  # type: ignore[arg-type]
        self.sessions: list[OpenSession] = []

    def open(self, sessions: Sequence[OpenSession]) -> None:
        self.sessions.extend(sessions)
        super().open(sessions)


def test_a_session_moved_to_another_drafter_says_where_its_output_starts() -> None:
    first, second = Recorder(), Recorder()
    with serving(first, "d0") as one, serving(second, "d1") as other, ported(one) as port:
        engine = Engine(port)
        engine.start(View("r", [3, 4, 5]))
        step_until(engine, lambda: first.sessions and engine.accepted)
        port.set_endpoints([Endpoint("d1", other.address, "toy")])
        step_until(engine, lambda: second.sessions)
        engine.stop()
    assert first.sessions[0].tokens == (3, 4, 5)
    assert len(second.sessions[0].tokens) > 3
    assert [s.prompt_len for s in (first.sessions[0], second.sessions[0])] == [3, 3]


def test_links_are_not_held_up_while_a_long_prompts_features_are_copied() -> None:
    """The port's lock is free meanwhile: whoever needs it gets it before the copy returns."""
    answered: list[bool] = []

    class Watching(View):
        def features(self, from_row: int, to_row: int) -> torch.Tensor | None:
            if from_row == 0:
                other = threading.Thread(target=port.status, daemon=True)
                other.start()
                other.join(10.0)
                answered.append(not other.is_alive())
            return super().features(from_row, to_row)

    drafter = ToyDrafter(taps=(1,))
    with serving(drafter) as endpoint, ported(endpoint, compat=tapped((1,))) as port:
        engine = Engine(port)
        engine.start(Watching("r", list(range(90)), rows=ROWS))
        step_until(engine, lambda: engine.accepted)
        engine.stop()
        assert drafter.wait_empty()
    assert answered == [True]
    (log,) = drafter.log.values()
    have = torch.cat(log)
    assert have.shape[0] > 90
    assert torch.equal(have, ROWS[: have.shape[0]])
