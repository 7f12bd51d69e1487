"""Suffix decoding: length adapts, longer contexts win, tenants never meet."""

from __future__ import annotations

import random

import pytest

from actors.drafters.suffix import SuffixDrafter
from actors.drafters.suffix_shared import SharedTrees
from tests.unit.actors.drafters.builders import (
    draft,
    make_commit,
    make_drafter,
    make_key,
    make_open,
)


def make_suffix(**fields: object) -> SuffixDrafter:
    drafter = make_drafter("suffix", **fields)
    assert isinstance(drafter, SuffixDrafter)
    return drafter


def finish(drafter: SuffixDrafter, response: list[int], request: str, tenant: str) -> None:
    """A whole request: a prompt of one unique token, then the response."""
    drafter.open([make_open([99_999], request, tenant)])
    drafter.observe([make_commit(1, *response, request=request)])
    drafter.close(make_key(request))
    drafter.shared.work(1_000_000)


def test_no_earlier_occurrence_means_no_draft() -> None:
    drafter = make_suffix()
    drafter.open([make_open(range(40))])
    assert draft(drafter) == ()


def test_a_draft_is_at_most_factor_tokens_for_each_matched_one() -> None:
    text = [1, 2, 3, 4, 5, 6, 7, 8, 9, 50, 1, 2]
    for factor, want in [(0.4, ()), (0.5, (3,)), (1.0, (3, 4)), (2.0, (3, 4, 5, 6))]:
        drafter = make_suffix(suffix_decoding_max_spec_factor=factor)
        drafter.open([make_open(text)])
        assert draft(drafter, 8) == want


def test_a_draft_ends_where_its_probability_falls_below_the_bound() -> None:
    # 1 2 is followed three times by 3, then by four different tokens: shares 1, then a third.
    text = [1, 2, 3, 4, 90, 1, 2, 3, 5, 91, 1, 2, 3, 6, 92, 1, 2]
    for bound, want in [(0.5, (3,)), (0.3, (3, 6))]:
        drafter = make_suffix(suffix_decoding_min_token_prob=bound)
        drafter.open([make_open(text)])
        assert draft(drafter, 8) == want


def test_confidence_is_the_share_of_what_followed_and_grows_with_what_is_alike() -> None:
    from actors.contracts import DraftRequest

    drafter = make_suffix(suffix_decoding_max_spec_factor=4.0)
    drafter.open([make_open([7, 1, 7, 2, 7, 1, 7])])
    proposal = drafter.propose([DraftRequest(make_key(), 2)])[0]
    # The context is "7 1 7"; it was followed by 2 alone, and that by 7 alone.
    assert proposal.tokens == (2, 7)
    assert proposal.confidence == (3 / 4, 4 / 5)
    drafter.observe([make_commit(7, 5, 7)])
    proposal = drafter.propose([DraftRequest(make_key(), 1)])[0]
    assert proposal.tokens == (1,)
    assert proposal.confidence == (0.25,)  # 7 was followed by 1, 2, 1 and 5


def test_a_longer_context_wins_over_a_more_frequent_shorter_one() -> None:
    drafter = make_suffix()
    drafter.open([make_open([5, 1, 2, 3, 8, 0, 3, 9, 0, 3, 9, 0, 3, 9, 4, 1, 2, 3])])
    assert draft(drafter, 1) == (8,)


def test_among_equally_frequent_continuations_the_latest_is_drafted() -> None:
    drafter = make_suffix()
    drafter.open([make_open([1, 7, 90, 1, 8, 91, 1])])
    assert draft(drafter, 1) == (8,)


def test_without_a_shared_tree_a_second_request_knows_nothing_of_the_first() -> None:
    drafter = make_suffix()
    finish(drafter, list(range(30)), "a", "t")
    drafter.open([make_open([3, 4, 5], "b", "t")])
    assert draft(drafter, request="b") == ()
    assert len(drafter.shared) == 0


def test_a_shared_tree_serves_its_own_tenant_alone() -> None:
    drafter = make_suffix(suffix_decoding_max_cached_requests=8)
    finish(drafter, list(range(30)), "a", "blue")
    for tenant, want in [("blue", (6, 7, 8)), ("red", ()), ("", ())]:
        drafter.open([make_open([3, 4, 5], "b", tenant)])
        assert draft(drafter, request="b") == want


def test_a_prompt_never_enters_the_shared_tree() -> None:
    drafter = make_suffix(suffix_decoding_max_cached_requests=8)
    drafter.open([make_open(range(30), "a", "t")])
    drafter.observe([make_commit(30, 77, 78, request="a")])
    drafter.close(make_key("a"))
    drafter.shared.work(1000)
    drafter.open([make_open([3, 4, 5], "b", "t")])
    assert draft(drafter, request="b") == ()


@pytest.mark.parametrize("shared", [True, False])
def test_sessions_without_a_tenant_share_only_when_told_to(shared: bool) -> None:
    drafter = make_suffix(
        suffix_decoding_max_cached_requests=8, suffix_decoding_share_untenanted=shared
    )
    finish(drafter, list(range(30)), "a", "")
    drafter.open([make_open([3, 4, 5], "b", "")])
    assert draft(drafter, request="b") == ((6, 7, 8) if shared else ())


def test_local_beats_shared_when_both_score_the_same() -> None:
    drafter = make_suffix(suffix_decoding_max_cached_requests=8)
    finish(drafter, [3, 4, 5, 6], "a", "t")
    drafter.open([make_open([3, 4, 5, 8, 50, 3, 4, 5], "b", "t")])
    assert draft(drafter, 1, request="b") == (8,)


def test_the_oldest_request_is_evicted_first_whatever_its_tenant() -> None:
    drafter = make_suffix(suffix_decoding_max_cached_requests=2)
    for name, tenant, start in [("a", "t", 100), ("b", "u", 200), ("c", "t", 300)]:
        finish(drafter, list(range(start, start + 10)), name, tenant)
    seen = {}
    for start, tenant in [(100, "t"), (200, "u"), (300, "t")]:
        drafter.open([make_open([start, start + 1], "d", tenant)])
        seen[start] = draft(drafter, 2, request="d")
    assert seen == {100: (), 200: (202, 203), 300: (302, 303)}
    assert len(drafter.shared) == 2


def test_memory_is_flat_after_the_cap() -> None:
    """10,000 tiny requests of many tenants: states stay bounded and evicted text is gone."""
    rng = random.Random(1)
    trees = SharedTrees(8, max_requests=20, max_tokens=1000)
    peaks = []
    for epoch in range(10):
        peak = 0
        for _ in range(1000):
            trees.add(f"t{rng.randrange(3)}", tuple(rng.randrange(5000) for _ in range(12)))
            trees.work(48)
            peak = max(peak, trees.states)
        peaks.append(peak)
        assert len(trees) == 20
        assert trees.tenants <= 3, epoch
    assert max(peaks) <= 8 * 20 * 12
    assert peaks[-1] <= 1.5 * peaks[0]


def test_tokens_are_bounded_as_well_as_requests() -> None:
    trees = SharedTrees(8, max_requests=100, max_tokens=30)
    for start in (0, 100, 200):
        trees.add("t", tuple(range(start, start + 12)))
    trees.add("t", tuple(range(31)))
    trees.work(1000)
    assert len(trees) == 2
    index = trees.index("t")
    assert index is not None
    assert list(index.match([0, 1])) == []
    assert list(index.match([100, 101])) != []


def test_a_successor_takes_over_with_the_same_answers() -> None:
    """Across take-overs, what is alive is found and what is evicted is not."""
    trees = SharedTrees(6, max_requests=3, max_tokens=1000)
    for n in range(40):
        trees.add("t", tuple(range(100 * n, 100 * n + 10)))
        trees.work(1000)
        index = trees.index("t")
        assert index is not None
        for old in range(n + 1):
            found = list(index.match([100 * old, 100 * old + 1]))
            assert bool(found) == (old > n - 3), (n, old)
