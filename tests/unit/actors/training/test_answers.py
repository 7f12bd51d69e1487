"""The target's answers and their hidden states, recorded once and kept whole."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from actors.training.answering import answer
from actors.training.errors import TrainingError
from actors.training.prompts import Prompt, read_prompts
from actors.training.recorder import Recorder
from actors.training.store import INDEX, Answer, AnswerStore, StoreHeader, read_answers
from tests.law.harness import make_engine, plain
from tests.models import make_rand

MODEL = make_rand(layers=3)
TAPS = (1, 3)
HEADER = StoreHeader("digest", TAPS, 64, 8, 40)
PROMPTS = [
    (Prompt(f"{i:024d}", "ab"[i % 2], f"text {i}"), tuple((3 * i + 5 * j) % 128 for j in range(9)))
    for i in range(5)
]


def run(folder: Path, prompts=PROMPTS, limit: int = 0) -> AnswerStore:
    store, recorder = AnswerStore(folder, HEADER, limit), Recorder(TAPS)
    answer(make_engine(MODEL, port=recorder, max_num_seqs=2), recorder, prompts, store, 8)
    return store


def answers(store: AnswerStore) -> dict[str, Answer]:
    return {a.name: a for s in store.shards for a in read_answers(store.folder, s, verify=True)}


@torch.inference_mode()
def states(tokens: tuple[int, ...], tap: int) -> torch.Tensor:
    caught: list[torch.Tensor] = []
    hook = (
        MODEL.get_decoder()
        .layers[tap - 1]
        .register_forward_hook(
            lambda _m, _a, out: caught.append(out[0] if isinstance(out, tuple) else out)
        )
    )
    MODEL.set_attn_implementation("sdpa")
    MODEL(input_ids=torch.tensor([tokens]), use_cache=False)
    hook.remove()
    return caught[0].reshape(len(tokens), -1).to(torch.bfloat16)


def test_an_answer_is_the_targets_own_and_its_rows_are_the_targets_hidden_states(tmp_path) -> None:
    """Features of all but the newest token, pre-norm, prefix hits and batches included."""
    found = answers(run(tmp_path))
    assert len(found) == len(PROMPTS)
    for prompt, ids in PROMPTS:
        kept = found[prompt.name]
        assert kept.tokens == (*ids, *plain(MODEL, ids, _greedy()))
        assert (kept.prompt_len, kept.category) == (len(ids), prompt.category)
        expected = torch.cat([states(kept.tokens[:-1], tap) for tap in TAPS], -1)
        torch.testing.assert_close(kept.features, expected, atol=0.0, rtol=2**-7)


def _greedy():
    from actors.sampling.params import SamplingParams

    return SamplingParams(temperature=0.0, max_tokens=8)


def test_a_quotation_is_kept_as_an_answer_that_the_greedy_target_did_not_write(tmp_path) -> None:
    """Its last token is the target's own; its rows are those of a text that was read."""
    prompt, ids = PROMPTS[0]
    quoted = replace(prompt, name=f"{prompt.name}-quoted", quoted=3)
    kept = answers(run(tmp_path, [(prompt, ids), (quoted, (*ids, *ids[2:5]))]))[quoted.name]
    assert kept.tokens[:-1] == (*ids, *ids[2:5])
    assert kept.tokens[-1] == plain(MODEL, kept.tokens[:-1], _greedy())[0]
    assert (kept.prompt_len, kept.sampled) == (len(ids), True)
    expected = torch.cat([states(kept.tokens[:-1], tap) for tap in TAPS], -1)
    torch.testing.assert_close(kept.features, expected, atol=0.0, rtol=2**-7)


def test_a_prompt_that_is_answered_is_not_answered_again(tmp_path) -> None:
    run(tmp_path, PROMPTS[:2])
    store = run(tmp_path, PROMPTS)
    assert [len(s.names) for s in store.shards] == [2, 3]
    assert set(answers(store)) == {prompt.name for prompt, _ in PROMPTS}


def test_a_store_that_is_full_stops_the_run_and_keeps_what_ran(tmp_path) -> None:
    run(tmp_path, PROMPTS[:2])
    store = run(tmp_path, PROMPTS, limit=1)
    assert store.full
    assert len(answers(store)) == 2


def test_a_store_of_another_target_or_other_taps_is_refused(tmp_path) -> None:
    run(tmp_path, PROMPTS[:1])
    with pytest.raises(TrainingError, match="holds answers of"):
        AnswerStore(tmp_path, StoreHeader("other", TAPS, 64, 8, 40))


def test_a_run_that_was_killed_while_writing_leaves_whole_shards_only(tmp_path) -> None:
    store = run(tmp_path, PROMPTS[:2])
    (tmp_path / "shard-00001.safetensors.part").write_bytes(b"half")
    with (tmp_path / INDEX).open("a") as index:
        index.write('{"file": "shard-00001.safe')
    assert [s.file for s in AnswerStore(tmp_path, HEADER).shards] == [store.shards[0].file]
    assert set(answers(run(tmp_path))) == {prompt.name for prompt, _ in PROMPTS}
    assert len(AnswerStore(tmp_path, HEADER).shards) == 2


def test_a_damaged_shard_is_refused_by_name(tmp_path) -> None:
    store = run(tmp_path, PROMPTS[:1])
    path = tmp_path / store.shards[0].file
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(bytes(data))
    with pytest.raises(TrainingError, match=store.shards[0].file):
        list(read_answers(tmp_path, store.shards[0], verify=True))


def write(path: Path, records: list[object]) -> Path:
    path.write_text("\n".join(json.dumps(r) for r in records))
    return path


def test_every_prefix_of_the_prompts_is_balanced_and_each_category_sampled_alike(tmp_path) -> None:
    records = [{"category": c, "prompt": f"{c}{i}"} for c in "abc" for i in range(8)]
    prompts = read_prompts(write(tmp_path / "p.jsonl", records), sampled_share=0.25)
    for n in (3, 6, 12):
        kinds = [p.category for p in prompts[:n]]
        assert {kinds.count(c) for c in "abc"} == {n // 3}
    assert [sum(p.sampled for p in prompts if p.category == c) for c in "abc"] == [2, 2, 2]


def test_the_same_prompt_twice_is_one(tmp_path) -> None:
    path = write(tmp_path / "p.jsonl", [{"prompt": "x"}, {"prompt": "x"}, {"prompt": "y"}])
    assert len(read_prompts(path)) == 2


def test_a_line_that_is_no_prompt_is_refused_with_its_number(tmp_path) -> None:
    path = write(tmp_path / "p.jsonl", [{"prompt": "x"}, {"text": "y"}])
    with pytest.raises(TrainingError, match=":2 "):
        read_prompts(path)
