"""What the engine's record makes of blocks that were drafted for evidence alone."""

from __future__ import annotations

from actors.contracts import Draft, Gathered
from actors.engine.speculation import Speculation
from policies.choice import Arm
from policies.cost import profiled
from policies.estimate import Scored

OTHER = Arm("other", True, 4)


def heard(gathered: Gathered, *texts: tuple[int, ...]) -> list[tuple[str, str, Scored]]:
    """Every block whose worth is known after these commits, of a request that uses `mine`."""
    engine = Speculation(profiled([(1, 1.0)]))
    told: list[tuple[str, str, Scored]] = []
    engine.scored = lambda request_id, mechanism, block: told.append((request_id, mechanism, block))
    engine.ask("r", 4, "mine")
    engine.heard(gathered)
    for text in texts:
        engine.settle("r", text)
    return told


def test_evidence_is_scored_against_what_is_written_and_belongs_to_its_mechanism() -> None:
    shadow = Gathered(shadows={"r": (OTHER, Draft((1, 2, 3), "other", True))})
    assert heard(shadow) == []
    assert heard(shadow, (1,), (2, 9)) == [("r", "other", Scored(3, 3, 2, False))]


def test_evidence_that_was_overtaken_counts_with_what_was_right_of_it() -> None:
    judged = Gathered(judged={"r": (OTHER, 4, 1)})
    assert heard(judged) == [("r", "other", Scored(4, 4, 1, False))]


def test_that_nothing_was_proposed_counts_as_nothing_that_came() -> None:
    assert heard(Gathered(judged={"r": (OTHER, 0, 0)})) == [("r", "other", Scored(1, 0, 0, False))]
