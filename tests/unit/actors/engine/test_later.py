"""What nobody looks at is not made, and what is looked at is made once."""

from __future__ import annotations

from collections.abc import Mapping

from actors.engine.later import Later


class Making:
    def __init__(self) -> None:
        self.times = 0

    def __call__(self) -> Mapping[str, float]:
        self.times += 1
        return {"a": 1.0, "b": 2.0}


def test_it_is_made_at_the_first_look_and_then_no_more() -> None:
    making = Making()
    later = Later(making)
    assert making.times == 0
    assert later["a"] == 1.0
    assert later.get("c", 0.0) == 0.0
    assert dict(later) == {"a": 1.0, "b": 2.0}
    assert len(later) == 2
    assert making.times == 1
