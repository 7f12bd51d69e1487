import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.reconcile import reconcile

TOKENS = st.lists(st.integers(0, 2), max_size=8).map(tuple)


def fit(base_len: int, block: tuple[int, ...], committed: tuple[int, ...], epoch: int = 0) -> str:
    return reconcile(
        base_len=base_len, block=block, block_epoch=0, committed=committed, epoch=epoch
    ).fit


def test_a_block_on_the_committed_length_is_used_whole() -> None:
    result = reconcile(base_len=2, block=(7, 8), block_epoch=3, committed=(1, 2), epoch=3)
    assert (result.fit, result.tokens) == ("use", (7, 8))


def test_the_tail_behind_a_right_guess_is_used() -> None:
    result = reconcile(base_len=2, block=(7, 8, 9), block_epoch=0, committed=(1, 2, 7), epoch=0)
    assert (result.fit, result.tokens, result.right) == ("stale_tail", (8, 9), 1)


def test_one_wrong_guess_makes_the_whole_block_stale() -> None:
    assert fit(2, (7, 8, 9), (1, 2, 6)) == "stale"


def test_a_block_that_was_overtaken_is_stale_even_when_it_was_right() -> None:
    assert fit(2, (7,), (1, 2, 7)) == "stale"


def test_another_epoch_is_never_used() -> None:
    assert fit(2, (7,), (1, 2), epoch=1) == "stale_epoch"


def test_a_block_past_the_commits_is_parked() -> None:
    assert fit(4, (7,), (1, 2)) == "parked"


@pytest.mark.parametrize("base_len", [-1, -5])
def test_a_base_before_the_first_token_is_stale(base_len: int) -> None:
    assert fit(base_len, (1,) * 9, (1, 1)) == "stale"


@settings(deadline=None)
@given(committed=TOKENS, base_len=st.integers(0, 10), block=TOKENS)
def test_what_is_used_continues_the_committed_tokens_as_the_block_said(
    committed: tuple[int, ...], base_len: int, block: tuple[int, ...]
) -> None:
    result = reconcile(base_len=base_len, block=block, block_epoch=0, committed=committed, epoch=0)
    if result.fit in ("use", "stale_tail"):
        assert committed[:base_len] + block == committed + result.tokens
    if result.fit == "stale_tail":
        assert result.tokens
        assert result.right == len(block) - len(result.tokens)
    if result.fit == "stale":
        written = committed[base_len:]
        assert block[: result.right] == written[: result.right]
        assert block[result.right : result.right + 1] != written[
            result.right : result.right + 1
        ] or result.right == len(block)
    if result.fit == "stale":
        overtaken = base_len + len(block) <= len(committed)
        assert overtaken or committed[base_len:] != block[: len(committed) - base_len]
