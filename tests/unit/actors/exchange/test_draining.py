"""A drafter that is to go says so; its sessions move before it does, and no row goes without."""

from __future__ import annotations

from dataclasses import replace

from tests.unit.actors.exchange.helpers import (
    Engine,
    ToyDrafter,
    View,
    assert_text_is_the_targets,
    make_views,
    ported,
    serving,
    step_until,
)


def test_a_draining_drafters_sessions_move_with_their_next_commits_and_no_row_misses_one() -> None:
    going, staying = ToyDrafter(), ToyDrafter()
    with (
        serving(going, "going") as leaving,
        serving(staying, "staying") as other,
        ported(leaving, other) as port,
    ):
        engine = Engine(port)
        engine.start(*make_views(8))
        assert engine.step().missing == {}
        homes = {record.drafter: record.sessions for record in port.status()}
        assert homes["going"] > 0
        port.set_endpoints([replace(leaving, draining=True), other])
        assert engine.step().missing == {}  # blocks that were on their way are used
        assert {record.drafter: record.sessions for record in port.status()} == {
            "going": 0,
            "staying": 8,
        }
        assert going.wait_empty()
        assert engine.step().missing == {}
        engine.start(*(later(view) for view in make_views(4)))
        assert engine.step().missing == {}
        assert not going.tokens
        assert_text_is_the_targets(engine)
        engine.stop()
        assert staying.wait_empty()


def later(view: View) -> View:
    return replace(view, request_id=f"late-{view.request_id}", prompt_len=0)


def test_with_nobody_to_go_to_sessions_stay_until_the_end_and_new_ones_are_refused() -> None:
    drafter = ToyDrafter()
    with serving(drafter, "only") as only, ported(only) as port:
        engine = Engine(port)
        engine.start(*make_views(2))
        assert engine.step().missing == {}
        port.set_endpoints([replace(only, draining=True)])
        for _ in range(3):
            assert engine.step().missing == {}
        late = later(make_views(1)[0])
        engine.start(late)
        assert engine.step().missing == {late.request_id: "no-drafter"}
        port.set_endpoints([])
        engine.gather()
        step_until(engine, lambda: set(engine.gather().missing.values()) == {"no-drafter"})
        assert_text_is_the_targets(engine)


def test_a_drain_that_is_called_off_brings_sessions_back_to_it() -> None:
    drafter = ToyDrafter()
    with serving(drafter, "only") as only, ported(only) as port:
        engine = Engine(port)
        port.set_endpoints([replace(only, draining=True)])
        engine.start(*make_views(2))
        assert set(engine.step().missing.values()) == {"no-drafter"}
        port.set_endpoints([only])
        engine.step()
        assert engine.step().missing == {}
