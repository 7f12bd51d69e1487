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
    assert_text_is_the_targets,
    next_token,
    ported,
    serving,
    step_until,
    tapped,
    wait_for,
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


def test_features_of_a_long_prompt_travel_while_it_is_read() -> None:
    """Each part leaves before the next is there; what the drafter gets are all rows, once."""
    drafter = Recorder(taps=(1, 2))
    prompt = [i % 97 for i in range(150)]
    view = View("r", prompt, rows=torch.empty(0, 8).bfloat16())
    with serving(drafter) as endpoint, ported(endpoint, compat=tapped((1, 2))) as port:
        engine = Engine(port)
        port.open(view)
        (link,) = [home.link for home in port._homes.values()]
        for stop in (40, 41, 149, 150):  # the last row is nobody's before the first commit
            view.rows = ROWS[:stop]
            frames = link.frames_sent
            port.prefilled("r", stop)
            wait_for(lambda: stop == 150 or link.frames_sent > frames)
            wait_for(lambda: link.feature_bytes == 0)
        view.rows = ROWS
        engine.views["r"], engine.rounds["r"] = view, 0
        engine.commit({"r": (next_token(view.tokens),)})
        step_until(engine, lambda: engine.accepted)
        assert_text_is_the_targets(engine)
        (key,) = drafter.log
        got = torch.cat(drafter.log[key])
        assert torch.equal(got, ROWS[: got.shape[0]])
        assert drafter.log[key][0].shape[0] == 149
