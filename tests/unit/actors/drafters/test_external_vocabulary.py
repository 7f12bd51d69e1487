"""A draft model of another vocabulary drafts what both have; the text is the target's own."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers.convert_slow_tokenizer import bytes_to_unicode

from actors.contracts import DraftRequest
from actors.drafters.config import DrafterConfig
from actors.drafters.errors import DrafterLoadError
from actors.drafters.external import ExternalDrafter
from actors.drafters.external_vocabulary import Intersection, intersect, token_texts
from actors.drafters.table import build_drafter
from actors.sampling.params import SamplingParams
from tests.law.harness import GREEDY, assert_pools_full, make_engine, plain, request, run
from tests.models import alphabet, make_rand, save_tiny
from tests.unit.actors.drafters.builders import make_commit, make_key, make_open

torch.set_num_threads(1)

VOCAB = 128
SAMPLED = SamplingParams(temperature=1.0, seed=5, max_tokens=40)


def permuted(model: Any, order: list[int]) -> Any:
    """The same model whose token i is the original's token order[i]."""
    other = copy.deepcopy(model)
    with torch.no_grad():
        for weight in (other.model.embed_tokens.weight, other.lm_head.weight):
            weight.copy_(weight[order].clone())
    return other


def folders(tmp_path: Path, order: list[int], names: list[str] | None = None) -> DrafterConfig:
    """A target and the same model under other ids; names: of the draft model's tokens."""
    target, letters = make_rand(), alphabet(VOCAB)
    save_tiny(target, tmp_path / "target")
    save_tiny(permuted(target, order), tmp_path / "draft", names or [letters[i] for i in order])
    return DrafterConfig(
        "draft_model",
        model=str(tmp_path / "draft"),
        target_tokenizer=str(tmp_path / "target"),
        target_vocab_size=VOCAB,
        dtype="float64",
        use_heterogeneous_vocab=True,
    )


ORDER = [(37 * i + 5) % VOCAB for i in range(VOCAB)]


@pytest.mark.parametrize("sampling", [GREEDY, SAMPLED], ids=["greedy", "coupled"])
def test_the_target_under_other_ids_is_never_wrong(
    sampling: SamplingParams, tmp_path: Path
) -> None:
    """Exact: the drafter has the target's weights, so every draft is accepted."""
    drafter = build_drafter(folders(tmp_path, ORDER))
    target = make_rand()
    own = plain(copy.deepcopy(target), [3, 9, 27], sampling)
    engine = make_engine(target, drafter, 4)
    assert run(engine, request("a", [3, 9, 27], sampling)) == {"a": own}
    assert engine.stats.accepted == engine.stats.drafted > 0
    assert_pools_full(engine)


@pytest.mark.parametrize("sampling", [GREEDY, SAMPLED], ids=["greedy", "coupled"])
def test_half_a_vocabulary_in_common_leaves_the_text_alone_and_only_that_half_is_drafted(
    sampling: SamplingParams, tmp_path: Path
) -> None:
    """Prompts hold tokens that the draft model does not have."""
    letters = alphabet(VOCAB)
    names = [letters[t] if t % 2 else chr(0x4E00 + t) for t in ORDER]
    drafter: Any = build_drafter(folders(tmp_path, ORDER, names))
    target = make_rand()
    prompts = {"a": [3, 9, 27, 80], "b": [2, 4, 6, 8], "c": list(range(30))}
    own = {n: plain(copy.deepcopy(target), p, sampling) for n, p in prompts.items()}
    proposed: list[int] = []
    propose = drafter.propose

    def spying(requests: Any) -> Any:
        answers = propose(requests)
        proposed.extend(token for answer in answers for token in answer.tokens)
        return answers

    drafter.propose = spying
    engine = make_engine(target, drafter, 4)
    assert run(engine, *(request(n, p, sampling) for n, p in prompts.items())) == own
    assert proposed
    assert all(token % 2 for token in proposed)
    assert_pools_full(engine)


def test_a_token_that_is_spelled_in_several_keeps_rows_and_positions_apart() -> None:
    """Drafting over commits equals a drafter that reads the whole text at once."""
    common = {i: VOCAB - 1 - i for i in range(1, VOCAB) if i % 3}
    texts = {i: "ab"[i % 2] * (1 + i % 4) for i in range(VOCAB)}
    other = Intersection(common, texts, lambda text: [ord(c) % 7 for c in text], VOCAB)
    model = make_rand(seed=3)

    def make() -> ExternalDrafter:
        config = DrafterConfig("draft_model", target_vocab_size=VOCAB, prefill_rows=8)
        return ExternalDrafter(copy.deepcopy(model), config, other=other)

    def block(drafter: ExternalDrafter) -> tuple[int, ...]:
        while (found := drafter.propose([DraftRequest(make_key(), 4)])[0]).cold:
            pass
        return found.tokens

    drafter, text = make(), [3, 4, 6, 9, 10, 11]
    drafter.open([make_open(text)])
    for kept in (0, 4, 2, 1, 3):
        drafts = block(drafter)
        commit = [*drafts[:kept], 9]
        drafter.observe([make_commit(len(text), *commit)])
        text.extend(commit)
        fresh = make()
        fresh.open([make_open(text)])
        assert block(drafter) == block(fresh)


def test_what_a_text_is_read_as_does_not_change_as_it_grows() -> None:
    other = Intersection({1: 5}, {2: "xy", 3: ""}, lambda text: [7] * len(text), 4, unknown=6)
    assert other.read([1, 2, 3, 1]) == [5, 7, 7, 6, 5]
    assert other.read([1, 2]) + other.read([3, 1]) == other.read([1, 2, 3, 1])


def test_the_texts_of_tokens_are_compared_whatever_a_vocabulary_writes_for_a_space() -> None:
    letters = {letter: 5 + byte for byte, letter in bytes_to_unicode().items()}
    byte_level = token_texts({**letters, "Ġthe": 0, "Ċ": 1, "Ã©": 2, "Ã": 3, "<|end of it|>": 4})
    assert [byte_level[i] for i in range(5)] == [" the", "\n", "é", "", "<|end of it|>"]
    pieces = token_texts({"▁the": 0, "<0x0A>": 1, "é": 2, "<0xC3>": 3, "</s>": 4})
    assert pieces == {0: " the", 1: "\n", 2: "é", 3: "", 4: "</s>"}


def test_another_vocabulary_is_refused_unless_it_is_asked_for(tmp_path: Path) -> None:
    from dataclasses import replace

    config = folders(tmp_path, ORDER)
    with pytest.raises(DrafterLoadError, match="use_heterogeneous_vocab drafts what both have"):
        build_drafter(replace(config, use_heterogeneous_vocab=False))
    with pytest.raises(DrafterLoadError, match="the target's is not known"):
        build_drafter(replace(config, target_tokenizer=""))


def test_vocabularies_with_nothing_in_common_are_refused(tmp_path: Path) -> None:
    config = folders(tmp_path, ORDER, [chr(0x4E00 + i) for i in range(VOCAB)])
    with pytest.raises(DrafterLoadError, match="share no token"):
        intersect(config, VOCAB)
