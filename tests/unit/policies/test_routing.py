from collections import Counter
from math import ceil

from hypothesis import given, settings
from hypothesis import strategies as st

from policies.routing import SLACK, Candidate, choose, rank

NAMES = [f"d{i}" for i in range(5)]


def spread(sessions: list[str], names: list[str]) -> dict[str, str]:
    """Sessions assigned one after the other, each to a drafter that keeps it."""
    homes: dict[str, str] = {}
    for session in sessions:
        loads = Counter(homes.values())
        home = choose(session, [Candidate(n, loads[n]) for n in names])
        assert home is not None
        homes[session] = home
    return homes


def test_nobody_there_is_no_choice() -> None:
    assert choose("s", []) is None
    assert choose("s", [Candidate("d0", 4, capacity=4)]) is None


def test_a_full_drafter_gets_nothing_while_another_has_room() -> None:
    full = Candidate("d0", 2, capacity=2)
    assert {choose(f"s{i}", [full, Candidate("d1", 90)]) for i in range(20)} == {"d1"}


@settings(deadline=None)
@given(count=st.integers(1, 200), drafters=st.integers(1, 5))
def test_no_drafter_carries_more_than_the_bound(count: int, drafters: int) -> None:
    homes = spread([f"s{i}" for i in range(count)], NAMES[:drafters])
    assert max(Counter(homes.values()).values()) <= ceil(SLACK * count / drafters)


@settings(deadline=None)
@given(session=st.text(max_size=8), gone=st.sampled_from(NAMES))
def test_when_a_drafter_leaves_only_its_own_sessions_move(session: str, gone: str) -> None:
    before = rank(session, NAMES)
    after = rank(session, [n for n in NAMES if n != gone])
    assert after == [n for n in before if n != gone]


def test_verifiers_spread_their_sessions_over_every_drafter() -> None:
    for verifier in ("v0", "v1"):
        homes = Counter(spread([f"{verifier}/{i}" for i in range(100)], NAMES).values())
        assert set(homes) == set(NAMES)


def test_the_order_of_the_candidates_does_not_matter() -> None:
    there = [Candidate(n, 1) for n in NAMES]
    for i in range(50):
        assert choose(f"s{i}", there) == choose(f"s{i}", there[::-1])
