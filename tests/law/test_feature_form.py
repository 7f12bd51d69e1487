"""Features through the drafter's first map on the verifier's side: the same drafts, fewer bytes."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TypeVar

import pytest
import torch

from actors.contracts import Commit, OpenSession
from actors.drafters.learned.projection import feature_form
from actors.exchange.form import FeatureForm
from tests.law.harness import GREEDY, request, run
from tests.law.learned import Follower, assert_same_block, configured, make, over_the_wire, propose
from tests.law.test_learned_drafters import PROMPTS, own_texts

torch.set_num_threads(1)

MAPPED = (
    "z-lab",
    "DeepSpec vanilla",
    "EAGLE-3 SafeAILab",
    "EAGLE-3 speculators input norm",
    "EAGLE-3.1 AutoModel",
    "P-EAGLE speculators",
)
AUTO = {"feature_format": "auto"}


def form_of(name: str, **fields: str) -> FeatureForm:
    return feature_form(configured(name, **AUTO, **fields), "cpu", "")


@pytest.mark.parametrize("name", MAPPED)
def test_projected_rows_give_the_drafts_of_raw_rows_rounded_once(name: str) -> None:
    rng = random.Random(3)
    raw, projected, form = make(name), make(name, **AUTO), form_of(name)
    first = raw.first_map
    raw.first_map = lambda rows: first(rows).bfloat16().to(rows.dtype)  # type: ignore[method-assign]
    assert form.projection is not None
    assert projected.info.projection == form.digest != ""
    assert projected.feature_dim == form.projection.width < raw.feature_dim
    follower = Follower(raw, "a", [rng.randrange(128) for _ in range(30)])
    opening = follower.opening()
    raw.open([opening])
    projected.open([_mapped(opening, form)])
    for _ in range(6):
        theirs = propose(raw, {follower.key: 4})[follower.key]
        assert_same_block(propose(projected, {follower.key: 4})[follower.key], theirs)
        right = rng.randrange(len(theirs.tokens) + 1)
        commit = follower.commit([*theirs.tokens[:right], rng.randrange(128)])
        raw.observe([commit])
        projected.observe([_mapped(commit, form)])


@pytest.mark.parametrize("dtype", ["bf16", "fp8"])
@pytest.mark.parametrize("name", ["DeepSpec vanilla", "EAGLE-3 speculators"])
def test_over_the_wire_the_text_is_the_targets_in_every_form(name: str, dtype: str) -> None:
    sampling = replace(GREEDY, max_tokens=24)
    own = own_texts(sampling)
    drafter = make(name, **AUTO)
    with over_the_wire(drafter, form=form_of(name, feature_dtype=dtype)) as (engine, _):
        found = run(engine, *(request(str(i), p, sampling) for i, p in enumerate(PROMPTS)))
        assert found == own
        assert engine.stats.drafted > 0


def test_drafters_share_a_digest_where_they_share_the_map_and_only_there() -> None:
    same, other = ("z-lab", "DeepSpec vanilla"), "EAGLE-3 SafeAILab"
    digests = {form_of(name).digest for name in same}
    assert len(digests) == 1
    assert form_of(other).digest not in digests


def test_a_drafter_without_a_shared_map_takes_features_as_they_are_tapped() -> None:
    assert form_of("MTP DeepSeek").projection is None
    assert make("MTP DeepSeek", **AUTO).info.projection == ""


Message = TypeVar("Message", OpenSession, Commit)


def _mapped(message: Message, form: FeatureForm) -> Message:
    assert message.features is not None
    return replace(message, features=form(message.features))
