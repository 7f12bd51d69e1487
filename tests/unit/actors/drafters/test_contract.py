"""What holds for every drafter, those of the tests included."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch

from actors.contracts import Commit, Drafter, DrafterError, DraftRequest, SessionKey
from actors.drafters.config import DrafterConfig
from actors.drafters.errors import DrafterLoadError
from actors.drafters.external import ExternalDrafter
from actors.drafters.table import BUILDERS, build_drafter
from tests.drafters.anti import AntiDrafter
from tests.drafters.exact_k import ExactKDrafter
from tests.drafters.failing import FailingDrafter
from tests.drafters.oracle import OracleDrafter
from tests.drafters.scripted import ScriptedDrafter
from tests.models import make_rand
from tests.unit.actors.drafters.builders import (
    converse,
    draft,
    make_commit,
    make_drafter,
    make_key,
    make_open,
)

torch.set_num_threads(1)


def following(prefix: Any, sampling: Any) -> int:
    return (int(prefix[-1]) + 1) % 16


MAKERS: dict[str, Callable[[], Any]] = {
    "ngram": lambda: make_drafter("ngram"),
    "suffix": lambda: make_drafter("suffix"),
    "suffix-shared": lambda: make_drafter("suffix", suffix_decoding_max_cached_requests=4),
    "draft_model": lambda: ExternalDrafter(
        make_rand(vocab=16, hidden=16, layers=1, heads=2, kv_heads=1), DrafterConfig("draft_model")
    ),
    "oracle": lambda: OracleDrafter(following, 16),
    "exact-k": lambda: ExactKDrafter(following, 16, k=2),
    "anti": lambda: AntiDrafter(following, 16),
    "scripted": lambda: ScriptedDrafter("1 2|3", repeat=True),
    "failing": lambda: FailingDrafter(at_round=1_000_000),
}
every = pytest.mark.parametrize("name", MAKERS)


@every
def test_a_thousand_random_opens_and_aborts_leave_every_table_empty(name: str) -> None:
    """L3: whatever the order of open, observe, propose and close."""
    rng = random.Random(name)
    drafter: Drafter = MAKERS[name]()
    live: dict[int, int] = {}
    for n in range(1000):
        live[n] = rng.randrange(1, 12)
        text = [rng.randrange(16) for _ in range(live[n])]
        drafter.open([make_open(text, str(n), tenant=str(n % 3))])
        for request in rng.sample(sorted(live), min(2, len(live))):
            drafter.propose([DraftRequest(make_key(str(request)), rng.randrange(4))])
            tokens = [rng.randrange(16) for _ in range(rng.randrange(1, 4))]
            drafter.observe([make_commit(live[request], *tokens, request=str(request))])
            live[request] += len(tokens)
        while len(live) > 4 or (live and rng.random() < 0.5):
            gone = rng.choice(sorted(live))
            drafter.close(make_key(str(gone)))
            del live[gone]
    for request in live:
        drafter.close(make_key(str(request)))
    sessions: Any = drafter.sessions  # type: ignore[attr-defined]
    assert len(sessions) == 0


@every
def test_closing_twice_or_what_was_never_open_is_nothing(name: str) -> None:
    drafter = MAKERS[name]()
    drafter.close(make_key("never"))
    drafter.open([make_open([1, 2])])
    drafter.close(make_key())
    drafter.close(make_key())
    sessions: Any = drafter.sessions  # type: ignore[attr-defined]
    assert len(sessions) == 0


@every
@pytest.mark.parametrize("stranger", [make_key("unknown"), make_key("known", epoch=1)])
def test_an_unknown_session_or_epoch_is_refused_by_its_key(name: str, stranger: SessionKey) -> None:
    drafter = MAKERS[name]()
    drafter.open([make_open([1, 2], "known")])
    with pytest.raises(DrafterError) as caught:
        drafter.propose([DraftRequest(stranger, 2), DraftRequest(make_key("known"), 2)])
    assert caught.value.keys == (stranger,)


@every
@pytest.mark.parametrize("from_len", [0, 1, 3, 2**31])
def test_a_commit_with_a_gap_fails_its_session_and_not_its_mates(name: str, from_len: int) -> None:
    drafter = MAKERS[name]()
    drafter.open([make_open([1, 2], "gap"), make_open([1, 2], "mate")])
    commits: list[Commit] = [make_commit(from_len, 7, request="gap")]
    with pytest.raises(DrafterError) as caught:
        drafter.observe([*commits, make_commit(2, 3, request="mate")])
    assert caught.value.keys == (make_key("gap"),)
    assert drafter.propose([DraftRequest(make_key("mate"), 2)])[0].base_len == 3


@every
def test_a_second_request_in_a_slot_never_drafts_from_the_first(name: str) -> None:
    """S40: a long repetitive request, then a short other one under the same key."""
    used, fresh = MAKERS[name](), MAKERS[name]()
    used.open([make_open([1, 2, 3, 4] * 20, tenant="a")])
    used.observe([make_commit(80, 1, 2)])
    used.propose([DraftRequest(make_key(), 4)])
    used.close(make_key())
    for drafter in (used, fresh):
        drafter.open([make_open([2, 3], tenant="b")])
    assert draft(used) == draft(fresh)


@every
def test_a_proposal_answers_its_request_in_order_and_within_its_depth(name: str) -> None:
    drafter = MAKERS[name]()
    names = ["a", "b", "c"]
    drafter.open([make_open([1, 2, 1, 2, 1][: 3 + i], n) for i, n in enumerate(names)])
    for depth in (0, 1, 3):
        found = drafter.propose([DraftRequest(make_key(n), depth) for n in reversed(names)])
        assert [p.key.request for p in found] == ["c", "b", "a"]
        assert [p.base_len for p in found] == [5, 4, 3]
        assert all(len(p.tokens) <= depth for p in found)
        assert all(p.confidence is None or len(p.confidence) == len(p.tokens) for p in found)


def test_exact_k_is_right_k_times_and_anti_never() -> None:
    for k in range(5):
        _, rounds = converse(ExactKDrafter(following, 16, k=k), [3], following, [4], 30)
        assert all(accepted == min(k, drafted) for drafted, accepted in rounds)
    _, rounds = converse(AntiDrafter(following, 16), [3], following, [4], 30)
    assert all(accepted == 0 for _, accepted in rounds)


def test_an_unknown_method_is_refused_with_the_known_ones_named() -> None:
    with pytest.raises(DrafterLoadError, match="'eagle9'; known: custom_class, dflash,") as e:
        build_drafter(DrafterConfig("eagle9"))
    assert e.value.param == "method"
    assert {"ngram", "suffix", "draft_model", "custom_class", "dflash", "dspark"} <= set(BUILDERS)


def test_a_custom_class_is_built_from_its_options() -> None:
    config = DrafterConfig(
        "custom_class", "tests.drafters.scripted:ScriptedDrafter", options={"blocks": "4 5|6"}
    )
    drafter = build_drafter(config)
    drafter.open([make_open([1])])
    assert draft(drafter) == (4, 5)


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (None, "module:Class"),
        ("tests.drafters.scripted", "module:Class"),
        ("tests.no_such_module:Drafter", "cannot import"),
        ("tests.drafters.scripted:Nothing", "cannot import"),
        ("tests.drafters.failing:FailingDrafter", "never loads"),
        ("collections:OrderedDict", "failed to start|lacks info"),
    ],
)
def test_a_custom_class_that_cannot_be_had_says_why(model: str | None, reason: str) -> None:
    with pytest.raises(DrafterLoadError, match=reason):
        build_drafter(DrafterConfig("custom_class", model, options={"mode": "load"}))
