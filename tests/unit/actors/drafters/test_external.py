"""The draft model's own KV: no hole, no shift, no leak, in fp64 on a model that sees its cache."""

from __future__ import annotations

import copy
import math
import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from transformers import MistralConfig, MistralForCausalLM

from actors.contracts import DrafterError, DraftRequest
from actors.drafters.allot import allot
from actors.drafters.config import DrafterConfig
from actors.drafters.external import ExternalDrafter
from actors.sampling.params import SamplingParams
from tests.drafters.knowing import continuation, detached, next_token_of
from tests.models import make_rand, make_succ
from tests.unit.actors.drafters.builders import (
    GREEDY,
    converse,
    draft,
    make_commit,
    make_key,
    make_open,
)

torch.set_num_threads(1)

PROMPT = [5, 17, 99, 3, 64, 12, 80]
SAMPLED = SamplingParams(temperature=1.0, seed=11, max_tokens=64)
NextToken = Callable[[Sequence[int], SamplingParams], int]


def make_external(model: Any, **fields: Any) -> ExternalDrafter:
    return ExternalDrafter(
        copy.deepcopy(model),
        DrafterConfig("draft_model", **{"num_speculative_tokens": 8, **fields}),
    )


def target_of(model: Any, prompt: Sequence[int]) -> NextToken:
    """The target's next token, the drafter's own idea of where the prompt ends included."""
    known, cache = detached(model), dict[tuple[int, ...], int]()

    def next_token(prefix: Sequence[int], sampling: SamplingParams) -> int:
        key = tuple(prefix)
        if key not in cache:
            cache[key] = continuation(known, prefix, sampling, len(prompt))
        return cache[key]

    return next_token


@pytest.mark.parametrize(
    "sampling",
    [
        pytest.param(GREEDY, id="greedy"),
        pytest.param(SAMPLED, id="coupled"),
        pytest.param(
            SamplingParams(
                temperature=0.8,
                top_k=40,
                top_p=0.95,
                repetition_penalty=1.2,
                presence_penalty=0.4,
                logit_bias=((3, 2.0),),
                seed=2**63 + 5,
            ),
            id="coupled-processed",
        ),
    ],
)
def test_drafting_with_the_targets_own_weights_has_every_draft_accepted(
    sampling: SamplingParams,
) -> None:
    """S28, at D = 1..8: rounds are exactly ceil((n - 1) / (D + 1))."""
    model = make_rand()
    target = target_of(model, PROMPT)
    for depth in range(1, 9):
        drafter = make_external(model)
        _, rounds = converse(drafter, PROMPT, target, [depth], 40, sampling)
        assert sum(drafted for drafted, _ in rounds) == sum(accepted for _, accepted in rounds)
        assert len(rounds) == math.ceil(39 / (depth + 1)), depth


def test_acceptance_is_whole_again_in_the_first_round_after_rounds_at_depth_0() -> None:
    """S30."""
    model = make_rand()
    schedule = [4] * 3 + [0] * 5 + [4] * 3
    _, rounds = converse(make_external(model), PROMPT, target_of(model, PROMPT), schedule, 36)
    assert [drafted for drafted, _ in rounds] == schedule
    assert all(drafted == accepted for drafted, accepted in rounds)


def test_drafts_from_incremental_state_equal_those_of_a_fresh_drafter() -> None:
    """I4, with a drafter that is wrong all the time, D changing from round to round."""
    rng = random.Random(3)
    target = next_token_of(make_rand(seed=0))
    for trial in range(6):
        model = make_rand(seed=1) if trial % 2 else make_perturbed(make_rand(seed=0))
        drafter, fresh = make_external(model), make_external(model)
        tokens = [rng.randrange(128) for _ in range(9)]
        drafter.open([make_open(tokens)])
        for _ in range(8):
            depth = rng.randrange(0, 6)
            block = draft(drafter, depth)
            fresh.open([make_open(tokens)])
            assert block == draft(fresh, depth)
            kept = rng.randrange(len(block) + 1)
            emitted = [*block[:kept], target([*tokens, *block[:kept]], GREEDY)]
            drafter.observe([make_commit(len(tokens), *emitted)])
            tokens += emitted


def test_a_commit_without_a_block_never_counts_an_older_blocks_rows() -> None:
    """Two commits in a row, the second equal to what the first one's block held."""
    drafter, fresh = make_external(make_rand(seed=1)), make_external(make_rand(seed=1))
    drafter.open([make_open(PROMPT)])
    block = draft(drafter, 4)
    text = [*PROMPT, block[0], (block[1] + 1) % 128, block[0], block[1], block[2]]
    drafter.observe([make_commit(7, *text[7:9])])
    drafter.observe([make_commit(9, *text[9:])])
    fresh.open([make_open(text)])
    assert draft(drafter, 4) == draft(fresh, 4)


def test_a_session_outgrows_its_first_memory_unharmed() -> None:
    drafter, fresh = make_external(make_rand(seed=1)), make_external(make_rand(seed=1))
    text = list(PROMPT)
    drafter.open([make_open(text)])
    while len(text) < 200:
        block = draft(drafter, 8)
        drafter.observe([make_commit(len(text), *block)])
        text += block
    fresh.open([make_open(text)])
    assert draft(drafter, 4) == draft(fresh, 4)
    _, session = drafter.sessions.pairs([DraftRequest(make_key(), 1)])[0]
    assert session.kv.rows == 256


def make_perturbed(model: Any) -> Any:
    """Nearly the target: accepted runs of every length occur."""
    torch.manual_seed(5)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(0.02 * torch.randn_like(weight))
    return model


def test_every_token_is_fed_at_its_absolute_position_and_none_twice_in_vain() -> None:
    """S31 on three ragged sessions; a row is fed again only when its draft was rejected."""
    drafter = make_external(make_rand(seed=1))
    texts = {"a": list(PROMPT), "b": [1, 2], "c": list(range(30, 55))}
    fed: list[tuple[str, int, int]] = []
    names: dict[int, str] = {}
    drafter._forward.model.register_forward_pre_hook(_recorder(fed, names), with_kwargs=True)
    drafter.open([make_open(text, name) for name, text in texts.items()])
    for name, session in zip(texts, drafter.sessions, strict=True):
        names[id(session.kv)] = name
    valid = {name: len(text) for name, text in texts.items()}  # rows that need no second feed
    rng = random.Random(0)
    for _ in range(6):
        fed.clear()
        wanted = [DraftRequest(make_key(name), rng.randrange(1, 5)) for name in texts]
        for proposal in drafter.propose(wanted):
            name, block = proposal.key.request, proposal.tokens
            text = [*texts[name], *block]
            start = min(valid[name], len(texts[name]) - 1)
            # Every row up to the last draft but one, once, in order, its own id.
            assert [(p, t) for n, p, t in fed if n == name] == list(enumerate(text))[start:-1]
            kept = rng.randrange(len(block) + 1)
            emitted = [*block[:kept], (text[-1] + 1) % 128]
            valid[name] = len(texts[name]) + min(kept, len(block) - 1)
            drafter.observe([make_commit(len(texts[name]), *emitted, request=name)])
            texts[name] += emitted


def _recorder(fed: list[tuple[str, int, int]], names: dict[int, str]) -> Any:
    def hook(module: Any, args: Any, kwargs: dict[str, Any]) -> None:
        ids, positions = kwargs["input_ids"][0].tolist(), kwargs["position_ids"][0].tolist()
        for span in kwargs["draft_step"].spans:
            for row in range(span.start, span.stop):
                assert positions[row] == span.offset + row - span.start
                fed.append((names.get(id(span.kv), "?"), positions[row], ids[row]))

    return hook


def test_sessions_drafted_together_draft_what_each_drafts_alone() -> None:
    model = make_rand(seed=2)
    rng = random.Random(8)
    texts = {f"s{i}": [rng.randrange(128) for _ in range(rng.randrange(1, 40))] for i in range(5)}
    sampling = [GREEDY, SAMPLED, GREEDY, SamplingParams(temperature=0.6, top_k=5, seed=3), SAMPLED]
    opens = [make_open(t, n, sampling=s) for (n, t), s in zip(texts.items(), sampling, strict=True)]
    together = make_external(model)
    together.open(opens)
    depths = [1, 4, 0, 3, 8]
    blocks = together.propose([DraftRequest(o.key, d) for o, d in zip(opens, depths, strict=True)])
    for opened, depth, block in zip(opens, depths, blocks, strict=True):
        alone = make_external(model)
        alone.open([opened])
        assert alone.propose([DraftRequest(opened.key, depth)]) == [block]
        assert len(block.tokens) == depth


@pytest.mark.parametrize("vocab", [120, 136])
def test_ids_that_only_one_vocabulary_has_are_never_proposed(vocab: int) -> None:
    """S34: a drafter with fewer ids reads the target's others, one with more writes none."""
    model = make_rand(vocab=vocab, seed=4)
    with torch.no_grad():  # the last ids always win
        model.lm_head.weight[-4:] *= 50
    for sampling in (GREEDY, SAMPLED):
        drafter = make_external(model, target_vocab_size=128)
        assert drafter.info.vocab_size == min(vocab, 128)
        rng = random.Random(1)
        length = 6
        drafter.open([make_open([127, 125, 3, 126, 9, 124], sampling=sampling)])
        for _ in range(10):
            block = draft(drafter, 4)
            assert len(block) == 4
            assert all(0 <= token < min(vocab, 128) for token in block)
            drafter.observe([make_commit(length, rng.randrange(128))])
            length += 1


def test_no_position_at_or_past_the_context_end_reaches_the_model() -> None:
    """S35."""
    model = make_rand(max_position_embeddings=64)
    for length in (*range(57, 66), 200):
        drafter = make_external(model)
        seen: list[int] = []
        drafter._forward.model.register_forward_pre_hook(
            lambda module, args, kwargs, seen=seen: seen.extend(kwargs["position_ids"][0].tolist()),
            with_kwargs=True,
        )
        drafter.open([make_open([i % 128 for i in range(length)])])
        assert len(draft(drafter, 8)) == min(8, max(0, 64 - length))
        assert max(seen, default=0) < 64
        drafter.observe([make_commit(length, 1, 2, 3)])
        assert len(draft(drafter, 8)) == min(8, max(0, 61 - length))
        assert max(seen, default=0) < 64


def test_the_target_context_bounds_a_drafter_that_could_go_further() -> None:
    drafter = make_external(make_rand(), max_context=10)
    assert drafter.info.max_context == 10
    drafter.open([make_open(PROMPT)])
    assert len(draft(drafter, 8)) == 3


def test_a_prompt_fed_in_parts_gives_the_same_first_block() -> None:
    """S38: until the last part there is no block, never one from half a prompt."""
    model, prompt = make_rand(), list(range(60))
    whole = make_external(model, num_speculative_tokens=4)
    whole.open([make_open(prompt)])
    parts = make_external(model, num_speculative_tokens=4, prefill_rows=6)
    parts.open([make_open(prompt)])
    blocks = [draft(parts, 4) for _ in range(5)]
    # 6 rows at open, then 6 + 2 * (4 + 1) each time: 54 missing rows take four calls.
    assert blocks[:3] == [()] * 3
    assert blocks[3] == blocks[4] == draft(whole, 4)


def test_a_long_prompt_never_holds_up_a_session_that_runs() -> None:
    drafter = make_external(make_rand(), prefill_rows=6)
    drafter.open([make_open([1, 2, 3], "runs")])
    drafter.open([make_open(list(range(100)), "long")])
    requests = [DraftRequest(make_key("long"), 4), DraftRequest(make_key("runs"), 4)]
    long, runs = drafter.propose(requests)
    assert len(runs.tokens) == 4
    assert (long.tokens, long.cold, runs.cold) == ((), True, False)


def test_allotted_rows_serve_the_shortest_first_and_everyone_a_little() -> None:
    assert allot([100, 3, 20], 5, 17) == [5 + 2, 3, 5 + 15]
    assert allot([], 5, 10) == []
    assert allot([2, 2], 5, 0) == [2, 2]


def test_logits_that_are_not_finite_fail_their_own_session_alone() -> None:
    """S51: a NaN's index is never a draft; the others are unharmed and may be asked again."""
    model = make_rand()
    with torch.no_grad():
        model.model.embed_tokens.weight[77] = math.nan
    for sampling in (GREEDY, SAMPLED):
        drafter = make_external(model)
        drafter.open([make_open([1, 77, 2], "bad"), make_open(PROMPT, "good", sampling=sampling)])
        with pytest.raises(DrafterError) as caught:
            drafter.propose([DraftRequest(make_key(n), 3) for n in ("bad", "good")])
        assert caught.value.keys == (make_key("bad"),)
        sound = make_external(model)
        sound.open([make_open(PROMPT, "good", sampling=sampling)])
        assert draft(drafter, 3, "good") == draft(sound, 3, "good")


@pytest.mark.parametrize(
    ("sampling", "want"),
    [
        (GREEDY, (4, 5)),
        (SamplingParams(temperature=0.0, ignore_eos=True), (4, 5, 6, 7)),
        (
            SamplingParams(temperature=0.0, ignore_eos=True, stop_token_ids=frozenset([6])),
            (4, 5, 6),
        ),
    ],
)
def test_a_block_ends_at_an_end_token_and_the_session_goes_on(
    sampling: SamplingParams, want: tuple[int, ...]
) -> None:
    """S09: the target writes 9 where the drafter saw EOS."""
    drafter = make_external(make_succ(eos=5))
    drafter.open([make_open([3], sampling=sampling)])
    assert draft(drafter, 4) == want
    drafter.observe([make_commit(1, 4, 9)])
    assert draft(drafter, 4) == (10, 11, 12, 13)


def test_asking_twice_gives_the_same_block() -> None:
    drafter = make_external(make_rand())
    drafter.open([make_open(PROMPT, sampling=SAMPLED)])
    assert draft(drafter, 3) == draft(drafter, 3) == draft(drafter, 6)[:3]


def test_a_sliding_window_is_the_models_own() -> None:
    torch.manual_seed(0)
    config = MistralConfig(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        sliding_window=5,
        initializer_range=0.3,
        bos_token_id=None,
        eos_token_id=None,
    )
    model = MistralForCausalLM(config).double().eval()
    prompt = [i * 7 % 64 for i in range(23)]
    _, rounds = converse(make_external(model), prompt, target_of(model, prompt), [3, 1, 0], 20)
    assert sum(d for d, _ in rounds) == sum(a for _, a in rounds) > 0


def test_closing_frees_the_kv_and_a_new_request_starts_from_nothing() -> None:
    """S40 for the draft model: a shorter second prompt drafts as on a new drafter."""
    model = make_rand()
    used = make_external(model)
    used.open([make_open(list(range(60)))])
    draft(used, 4)
    used.close(make_key())
    assert len(used.sessions) == 0
    used.open([make_open([9, 8])])
    fresh = make_external(model)
    fresh.open([make_open([9, 8])])
    assert draft(used, 4) == draft(fresh, 4)
