from policies.retry import FIRST_S, LONGEST_S, pause_s


def test_rests_double_up_to_the_longest() -> None:
    assert [pause_s(n) for n in range(4)] == [0.0, FIRST_S, 2 * FIRST_S, 4 * FIRST_S]
    assert pause_s(10_000) == LONGEST_S
