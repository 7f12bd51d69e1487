"""Of several policy actors the last one speaks."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from policies.reign import DESERTED, MAX_TERM, Reign, deserted, heard, spoke


def test_one_that_has_spoken_falls_silent_for_a_later_one_and_for_good() -> None:
    reign = heard(spoke(Reign(5)), 3, 6, 1)
    assert reign.over
    assert reign.term == 5
    assert heard(reign, 3, 5, 1).over
    assert heard(reign, 3, 9, 1).successor == 9


def test_one_that_has_not_spoken_goes_beyond_what_was_before_it() -> None:
    """Its clock was behind."""
    reign = heard(Reign(5), 1, 900, 7)
    assert not reign.over
    assert reign.term == 901


def test_what_is_older_or_its_own_changes_nothing() -> None:
    for reign in (Reign(5), spoke(Reign(5))):
        assert heard(reign, 3, 5, 3) == reign
        assert heard(reign, 3, 4, 99) == reign
        assert heard(reign, 3, 0, 0) == reign
        assert heard(reign, 3, MAX_TERM, 0) == reign


def test_of_two_with_the_same_term_one_that_is_behind_gives_way() -> None:
    assert heard(spoke(Reign(5)), 3, 5, 4).over


def test_a_silent_one_that_alone_is_left_to_be_asked_speaks_again_as_a_new_one() -> None:
    silent = heard(spoke(Reign(5)), 3, 6, 1)
    assert deserted(silent, DESERTED - 1) == silent
    assert deserted(silent, DESERTED) == Reign(7)


def test_refusals_are_nothing_to_one_that_speaks() -> None:
    """It was another one that refused."""
    for reign in (Reign(5), spoke(Reign(5))):
        assert deserted(reign, 10 * DESERTED) == reign


@given(st.lists(st.integers(0, 1), max_size=40), st.integers(-2, 2))
def test_two_that_spoke_never_outbid_each_other(asked: list[int], ahead: int) -> None:
    """Whoever verifiers hear next: terms stand once both have spoken, and one speaks to the end."""
    actors = [spoke(Reign(10)), spoke(Reign(10 + ahead))]
    newest = (0, 0)
    for which in asked:
        actors[which] = heard(actors[which], 1, *newest)
        if not actors[which].over:
            newest = max(newest, (actors[which].term, 1))
    assert {actor.term for actor in actors} == {10, 10 + ahead}
    assert not all(actor.over for actor in actors)
