"""A draft model on the native executor drafts what transformers' classes draft; nothing leaks."""

from __future__ import annotations

import logging
import math
import random
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from actors.contracts import DraftRequest
from actors.drafters.config import DrafterConfig
from actors.drafters.external import ExternalDrafter
from actors.drafters.external_forward import TorchForward
from actors.drafters.external_native import BLOCK, FIRST, GrowingPool, PackedForward
from actors.drafters.table import build_drafter
from actors.engine.closeness import probe_ids
from actors.engine.native.check import ROWS
from actors.exchange.guard import GuardedDrafter
from actors.sampling.params import SamplingParams
from actors.sampling.rules import Rule
from tests.models import make_rand, save_tiny
from tests.native import KINDS, make_model, needs_compiler
from tests.unit.actors.drafters.builders import (
    GREEDY,
    converse,
    draft,
    make_commit,
    make_key,
    make_open,
)
from tests.unit.actors.drafters.test_external import target_of

pytestmark = needs_compiler
torch.set_num_threads(1)

CACHE = str(Path(tempfile.gettempdir()) / "pilotfish-tests-executor")
CONFIG = DrafterConfig(
    "draft_model", num_speculative_tokens=8, max_context=256, compile_cache=CACHE, threads=1
)
SAMPLED = SamplingParams(temperature=1.0, seed=11, max_tokens=64)


def _memory(drafter: ExternalDrafter) -> GrowingPool:
    assert isinstance(drafter._forward, PackedForward)
    return drafter._forward.memory


def native(model: Any, **fields: Any) -> ExternalDrafter:
    drafter = ExternalDrafter(model, replace(CONFIG, **fields))
    assert isinstance(drafter._forward, PackedForward)
    return drafter


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rule", ["coupled", "block"])
def test_drafts_are_those_of_transformers_classes(kind: str, rule: Rule) -> None:
    """fp32, a batch of sessions, greedy and sampled, with rejections at every length."""
    rng = random.Random(5)
    model = make_model(kind, torch.float32)
    both = [
        native(model, rejection_sample_method=rule),
        ExternalDrafter(model, replace(CONFIG, compile_cache="", rejection_sample_method=rule)),
    ]
    texts = {f"r{i}": [rng.randrange(120) for _ in range(n)] for i, n in enumerate((1, 9, 70, 33))}
    kinds = dict(zip(texts, [GREEDY, SAMPLED, GREEDY, SAMPLED], strict=True))
    for drafter in both:
        drafter.open([make_open(t, name, sampling=kinds[name]) for name, t in texts.items()])
    for _ in range(10):
        asked = [DraftRequest(make_key(name), rng.randrange(6)) for name in texts]
        ours, theirs = (drafter.propose(asked) for drafter in both)
        assert [p.tokens for p in ours] == [p.tokens for p in theirs]
        for name, proposal in zip(texts, ours, strict=True):
            kept = rng.randrange(len(proposal.tokens) + 1)
            emitted = [*proposal.tokens[:kept], rng.randrange(120)]
            for drafter in both:
                drafter.observe([make_commit(len(texts[name]), *emitted, request=name)])
            texts[name] += emitted


def test_drafting_with_the_targets_own_weights_has_every_draft_accepted() -> None:
    prompt = [5, 17, 99, 3, 64, 12, 80]
    model = make_rand(dtype=torch.float32)
    for depth in range(1, 9):
        _, rounds = converse(native(model), prompt, target_of(model, prompt), [depth], 40)
        assert len(rounds) == math.ceil(39 / (depth + 1)), depth


def test_a_sessions_drafts_are_its_own_in_any_batch() -> None:
    """bf16: not even the last bit of a logit comes from its mates."""
    rng = random.Random(1)
    model = make_rand(dtype=torch.bfloat16)
    texts = {f"r{i}": [rng.randrange(128) for _ in range(5 + 9 * i)] for i in range(6)}
    together = native(model)
    together.open([make_open(text, name, sampling=SAMPLED) for name, text in texts.items()])
    blocks = together.propose([DraftRequest(make_key(name), 5) for name in texts])
    for (name, text), block in zip(texts.items(), blocks, strict=True):
        alone = native(model)
        alone.open([make_open(text, name, sampling=SAMPLED)])
        assert draft(alone, 5, name) == block.tokens


def test_memory_grows_under_sessions_without_a_changed_draft() -> None:
    """What was written before the pool moved is read after it."""
    model = make_rand(dtype=torch.float32)
    drafter, fresh = native(model), native(model)
    forward = drafter._forward
    assert isinstance(forward, PackedForward)
    text = [(11 * i) % 128 for i in range(200)]
    for i in range(12):
        drafter.open([make_open(text[i:], f"r{i}")])
    assert forward.memory.blocks > FIRST
    for i in range(12):
        fresh.open([make_open(text[i:])])
        assert draft(drafter, 4, f"r{i}") == draft(fresh, 4)


def test_every_block_of_a_closed_or_reopened_session_is_free_again() -> None:
    """L3."""
    drafter = native(make_rand(dtype=torch.float32))
    forward = drafter._forward
    assert isinstance(forward, PackedForward)
    for _ in range(50):
        drafter.open([make_open([7] * 90), make_open([9] * 60, "other")])
        draft(drafter)
        drafter.open([make_open([3] * 20)])  # its key again, before it is closed
        draft(drafter)
        drafter.close(make_key())
        drafter.close(make_key("other"))
        assert forward.memory.free == forward.memory.blocks == FIRST


def test_a_session_that_is_opened_twice_at_once_has_the_blocks_of_the_last_alone() -> None:
    """L3."""
    drafter, fresh = (native(make_rand(dtype=torch.float32)) for _ in range(2))
    drafter.open([make_open([1] * 40), make_open([2] * 50)])
    fresh.open([make_open([2] * 50)])
    assert draft(drafter) == draft(fresh)
    drafter.close(make_key())
    assert _memory(drafter).free == _memory(drafter).blocks


def test_memory_that_cannot_be_had_costs_its_session_and_nothing_is_written_past_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """L2: blocks that do not exist are nobody's."""

    def none_left(*args: object, **named: object) -> None:
        raise RuntimeError("can't allocate memory")

    model = make_rand(dtype=torch.float32)
    drafter, fresh = (native(model, prefill_rows=1000) for _ in range(2))
    memory = _memory(drafter)
    small, long = make_open([6] * 20, "small"), [make_open([7] * 250, f"r{i}") for i in range(4)]
    guarded = GuardedDrafter(drafter)
    assert guarded.open([small]) == {}
    with monkeypatch.context() as patch:
        patch.setattr("actors.drafters.external_native.KVPool", none_left)
        for _ in range(2):
            failed = guarded.open(long)
            assert {k.request for k in failed} == {"r3"}
            assert "can't allocate" in failed[make_key("r3")]
            assert memory.blocks * BLOCK == memory.pool.num_slots
    assert guarded.open(long) == {}
    assert memory.blocks > FIRST
    fresh.open([small])
    assert draft(drafter, 4, "small") == draft(fresh, 4, "small")


def test_a_row_that_is_not_finite_fails_its_session_and_no_later_owner_of_its_blocks() -> None:
    """L2, S52."""
    model = make_rand(dtype=torch.float32)
    proven = probe_ids(ROWS, model.config.vocab_size)  # at the start
    token = next(t for t in range(4, 128) if t not in proven)
    with torch.no_grad():
        model.model.embed_tokens.weight[token] = float("nan")
    drafter, fresh = native(model), native(model)
    guarded = GuardedDrafter(drafter)
    guarded.open([make_open([1, token, 3] * 30, "bad"), make_open([5] * 30, "good")])
    fresh.open([make_open([5] * 30, "good"), make_open([6] * 90, "next")])
    asked = [DraftRequest(make_key(name), 4) for name in ("bad", "good")]
    bad, good = guarded.propose(asked, [90, 30])
    assert "not finite" in str(bad)
    assert getattr(good, "tokens", ()) == draft(fresh, 4, "good")
    guarded.open([make_open([6] * 90, "next")])
    assert draft(drafter, 4, "next") == draft(fresh, 4, "next")


def test_a_dtype_that_was_asked_for_stays_where_the_executor_cannot_be_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only what was chosen for the executor is changed back."""
    monkeypatch.setattr("actors.drafters.external_forward.has_bf16_units", lambda device: False)
    (tmp_path / "file").touch()
    for dtype, computes in (("auto", torch.float32), ("bfloat16", torch.bfloat16)):
        config = replace(CONFIG, compile_cache=str(tmp_path / "file"), dtype=dtype)
        forward = ExternalDrafter(make_rand(dtype=torch.bfloat16), config)._forward
        assert isinstance(forward, TorchForward)
        assert forward.model.dtype is computes


def test_loaded_for_the_executor_it_is_bf16_and_says_what_it_takes(tmp_path: Path) -> None:
    save_tiny(make_rand(dtype=torch.float32), tmp_path)
    loaded = build_drafter(replace(CONFIG, model=str(tmp_path)))
    assert isinstance(loaded, ExternalDrafter)
    assert isinstance(loaded._forward, PackedForward)
    # 2 layers, keys and values, 2 heads of 16 numbers, 2 bytes; doubled as memory grows.
    assert loaded.info.token_bytes == 2 * 2 * 2 * 2 * 16 * 2
    weights = sum(p.numel() for p in make_rand().parameters())
    assert 2 * weights <= loaded.info.weight_bytes < 3 * weights


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("float64", "neither bfloat16 nor float32"),
        ("unbounded", "bounds its context"),
        ("no folder", "cannot be built"),
    ],
)
def test_what_the_executor_cannot_run_computes_in_torch_and_says_why(
    fault: str, said: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config, model = CONFIG, make_rand(dtype=torch.float32)
    if fault == "float64":
        model = model.double()
    elif fault == "unbounded":
        model.config.max_position_embeddings = 0
        config = replace(CONFIG, max_context=0)
    else:
        (tmp_path / "file").touch()
        config = replace(CONFIG, compile_cache=str(tmp_path / "file"))
    with caplog.at_level(logging.WARNING):
        drafter = ExternalDrafter(model, config)
    assert isinstance(drafter._forward, TorchForward)
    assert said in caplog.text
