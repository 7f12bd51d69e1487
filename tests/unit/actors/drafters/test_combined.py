"""Suffix decoding and another drafter as one."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from actors.contracts import DrafterError, DraftRequest
from actors.drafters.combined import CombinedDrafter
from actors.sampling.params import SamplingParams
from tests.drafters.anti import AntiDrafter
from tests.drafters.failing import FailingDrafter
from tests.drafters.oracle import OracleDrafter
from tests.unit.actors.drafters.builders import (
    converse,
    draft,
    make_commit,
    make_drafter,
    make_key,
    make_open,
)


def following(prefix: Sequence[int], sampling: SamplingParams) -> int:
    return (int(prefix[-1]) + 1) % 16


def combined(other: object) -> CombinedDrafter:
    return CombinedDrafter(other, make_drafter("suffix"))  # type: ignore[arg-type]


def test_what_the_text_has_said_before_is_drafted_without_asking_the_other() -> None:
    other = AntiDrafter(following, 16)
    drafter = combined(other)
    drafter.open([make_open([1, 2, 3, 4, 5, 6, 1, 2, 3])])
    assert draft(drafter, 3) == (4, 5, 6)
    assert other.calls == 0


def test_where_suffix_finds_nothing_the_other_drafts() -> None:
    drafter = combined(OracleDrafter(following, 16))
    drafter.open([make_open([3, 9])])
    assert draft(drafter, 3) == (10, 11, 12)


def test_a_block_asked_for_further_goes_on_with_the_drafter_it_had() -> None:
    other = OracleDrafter(following, 16)
    drafter = combined(other)
    drafter.open([make_open([1, 2, 3, 9, 9, 1, 2, 3])])
    first = draft(drafter, 1)
    assert draft(drafter, 2)[:1] == first == (9,)
    assert other.calls == 0


def test_both_see_every_commit() -> None:
    """Whoever drafted: the other is never behind (S30)."""
    other = OracleDrafter(following, 16)
    drafter = combined(other)
    drafter.open([make_open([1, 2, 3, 4, 1, 2])])
    assert draft(drafter, 2) == (3, 4)
    drafter.observe([make_commit(6, 3, 7)])
    assert list(other.sessions[make_key()].tokens) == [1, 2, 3, 4, 1, 2, 3, 7]
    assert draft(drafter, 2) == (8, 9)


def test_the_text_is_never_changed_and_acceptance_is_at_least_the_others() -> None:
    def cycle(prefix: Sequence[int], sampling: SamplingParams) -> int:
        return (int(prefix[-1]) + 1) % 7

    for other in (OracleDrafter(following, 16), AntiDrafter(following, 16)):
        output, rounds = converse(combined(other), [3], cycle, [4], 60)
        assert output == [cycle([(3 + i) % 7], SamplingParams()) for i in range(60)]
        late = rounds[-5:]
        assert all(accepted == drafted > 0 for drafted, accepted in late)


def test_a_drafter_that_promises_too_much_loses_to_one_that_keeps_it() -> None:
    """A text without rule says nothing of what comes next, however often it repeats itself."""

    def next_token(prefix: Sequence[int], sampling: SamplingParams) -> int:
        return random.Random(len(prefix)).randrange(4)

    other = OracleDrafter(next_token, 16)
    drafter = combined(other)
    _, rounds = converse(drafter, [1, 2, 3], next_token, [4], 400)
    late = [accepted for drafted, accepted in rounds[-20:] if drafted]
    assert sum(late) / len(late) > 3.0
    assert drafter._trust.kept < 0.8 * drafter._trust.promised


def test_sessions_that_fail_in_either_are_named_and_the_rest_goes_on() -> None:
    drafter = combined(OracleDrafter(following, 16))
    drafter.open([make_open([3, 9], "a"), make_open([4, 8], "b")])
    with pytest.raises(DrafterError) as caught:
        drafter.observe([make_commit(7, 1, request="a"), make_commit(2, 9, request="b")])
    assert caught.value.keys == (make_key("a"),)
    assert draft(drafter, 2, "b") == (10, 11)


def test_nothing_of_a_session_outlives_its_end() -> None:
    drafter = combined(FailingDrafter(at_round=1_000_000))
    drafter.open([make_open([3, 9])])
    drafter.propose([DraftRequest(make_key(), 2)])
    drafter.close(make_key())
    drafter.close(make_key())
    assert not drafter.sessions
    with pytest.raises(DrafterError):
        drafter.propose([DraftRequest(make_key(), 2)])


def test_it_needs_what_its_other_half_needs() -> None:
    other = OracleDrafter(following, 16)
    info = combined(other).info
    assert info.mechanism == f"{other.info.mechanism}+suffix"
    assert info.taps == other.info.taps
    assert info.vocab_size == other.info.vocab_size
