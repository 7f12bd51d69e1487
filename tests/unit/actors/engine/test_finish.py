"""A block ends where token-by-token decoding ends (S01, S04, S05, S35)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.engine.finish import Settled, settle
from actors.sampling.params import SamplingParams

STOP, EOS = 99, 7
FAR = 10**9


def settled(
    tokens: Sequence[int],
    output_len: int = 0,
    total_len: int = 5,
    max_model_len: int = FAR,
    **params: Any,
) -> Settled:
    params = {"max_tokens": FAR, **params}
    eos = frozenset([EOS])
    return settle(tokens, output_len, total_len, SamplingParams(**params), eos, max_model_len)


def test_eos_inside_a_block_is_the_last_token() -> None:
    assert settled([4, 5, 6, EOS, 8, 9]) == Settled((4, 5, 6, EOS), "stop")
    assert settled([EOS]) == Settled((EOS,), "stop")


def test_ignored_eos_is_a_token_like_any_other() -> None:
    assert settled([4, EOS, 8], ignore_eos=True) == Settled((4, EOS, 8))


def test_a_stop_token_is_kept_and_named() -> None:
    stops = frozenset([STOP])
    assert settled([1, STOP, 2], stop_token_ids=stops) == Settled((1, STOP), "stop", STOP)
    assert settled([1, EOS], ignore_eos=True, stop_token_ids=frozenset([EOS])) == Settled(
        (1, EOS), "stop", EOS
    )
    assert settled([EOS], stop_token_ids=frozenset([EOS])) == Settled((EOS,), "stop")


@pytest.mark.parametrize(
    ("max_tokens", "tokens", "finish"),
    [(5, (10, 11, STOP), "stop"), (3, (10, 11, STOP), "stop"), (2, (10, 11), "length")],
)
def test_a_stop_inside_the_budget_wins_over_length(
    max_tokens: int, tokens: tuple[int, ...], finish: str
) -> None:
    got = settled(
        [10, 11, STOP, 20, 21, 22], max_tokens=max_tokens, stop_token_ids=frozenset([STOP])
    )
    assert (got.tokens, got.finish) == (tokens, finish)


@pytest.mark.parametrize("before", [0, 1, 4])
@pytest.mark.parametrize("max_tokens", [1, 2, 3, 4, 5, 6, 9, 10, 11])
@pytest.mark.parametrize("stops", [frozenset(), frozenset([STOP])])
def test_never_more_than_max_tokens(before: int, max_tokens: int, stops: frozenset[int]) -> None:
    got = settled([1] * 6, before, max_tokens=max_tokens, stop_token_ids=stops)
    room = max(0, max_tokens - before)
    assert got == Settled((1,) * min(6, room), "length" if room <= 6 else None)


@pytest.mark.parametrize("prompt", range(57, 64))
def test_the_context_ends_at_exactly_max_model_len(prompt: int) -> None:
    got = settled([1] * 9, 0, prompt, 64)
    assert len(got.tokens) == min(9, 64 - prompt)
    assert got.finish == ("length" if 64 - prompt <= 9 else None)
    assert settled([], 0, 64, 64) == Settled((), "length")


def test_before_min_tokens_nothing_stops() -> None:
    assert settled([EOS, 1, EOS, 2], min_tokens=3) == Settled((EOS, 1, EOS), "stop")
    assert settled([EOS, 1, EOS, 2], output_len=2, min_tokens=3) == Settled((EOS,), "stop")


def test_an_empty_block_ends_nothing() -> None:
    assert settled([]) == Settled(())


@given(
    st.lists(st.sampled_from([1, 2, EOS, STOP]), max_size=30),
    st.lists(st.integers(1, 6), min_size=1, max_size=30),
    st.integers(1, 20),
    st.integers(0, 8),
    st.integers(5, 25),
    st.booleans(),
)
def test_any_split_into_blocks_gives_the_text_of_single_tokens(
    text: list[int],
    sizes: list[int],
    max_tokens: int,
    min_tokens: int,
    max_model_len: int,
    ignore_eos: bool,
) -> None:
    def run(cuts: list[int]) -> Settled:
        written: tuple[int, ...] = ()
        at, turn = 0, 0
        while at < len(text):
            block = text[at : at + cuts[turn % len(cuts)]]
            at, turn = at + len(block), turn + 1
            got = settled(
                block,
                len(written),
                4 + len(written),
                max_model_len,
                max_tokens=max_tokens,
                min_tokens=min_tokens,
                ignore_eos=ignore_eos,
                stop_token_ids=frozenset([STOP]),
            )
            written += got.tokens
            if got.finish:
                return Settled(written, got.finish, got.stop_token)
        return Settled(written)

    assert run(sizes) == run([1])
