"""In bf16, bit for bit: the native executor's output depends on a request alone (DESIGN §8).

Token ids and log-probabilities are compared as they are, without a tolerance: with and without
speculation, alone and in a batch, chunked, after prefix hits and after preemption.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch

from actors.contracts import Drafter
from actors.engine.core import Engine, drain
from actors.sampling.params import SamplingParams
from tests.drafters.anti import AntiDrafter
from tests.drafters.exact_k import ExactKDrafter
from tests.drafters.oracle import OracleDrafter
from tests.law.harness import make_engine, request
from tests.native import VOCAB, make_model, make_native, needs_compiler

pytestmark = needs_compiler

KINDS = ("llama", "mistral", "qwen2", "qwen3")
GREEDY = SamplingParams(temperature=0.0, max_tokens=24, logprobs=2)
SAMPLED = SamplingParams(temperature=1.0, seed=7, max_tokens=24, logprobs=2)
STEM = [(11 * i + 3) % VOCAB for i in range(33)]
PROMPTS = [
    [*STEM[:cut], *((7 * i + cut + n) % VOCAB for i in range(n))]
    for n, cut in ((1, 33), (3, 0), (9, 33), (40, 8), (5, 17), (70, 0))
]

Written = list[tuple[int, Any]]
"""Token and scores, one a position."""


@functools.cache
def parts(kind: str) -> tuple[Any, Any]:
    model = make_model(kind, torch.bfloat16)
    return model, make_native(model)[1]


def native_engine(kind: str, drafter: Drafter | None = None, depth: int = 4, **kw: Any) -> Engine:
    model, native = parts(kind)
    engine = make_engine(model, drafter, depth, **kw)
    engine.target = native
    return engine


def params(index: int) -> SamplingParams:
    return GREEDY if index % 2 else replace(SAMPLED, seed=100 + index)


def written(
    engine: Engine, arrivals: Sequence[tuple[str, int]], seed: int = 0
) -> dict[str, Written]:
    """Requests that arrive in the middle of each other's work."""
    rng = random.Random(seed)
    queue = list(arrivals)
    texts: dict[str, Written] = {name: [] for name, _ in queue}
    while queue or engine.has_work:
        for _ in range(min(len(queue), rng.randint(0, 2))):
            name, index = queue.pop(0)
            engine.add(request(name, PROMPTS[index], params(index)))
        for event in engine.step():
            assert event.error is None, event.error
            texts[event.request_id] += zip(event.tokens, event.logprobs, strict=True)
    return texts


@functools.cache
def alone(kind: str) -> list[Written]:
    """Each prompt by itself, one row at a time after its prefill, nothing cached."""
    return [
        written(native_engine(kind, prefix=False), [("only", i)])["only"]
        for i in range(len(PROMPTS))
    ]


def next_token(kind: str, prefix: Sequence[int], sampling: SamplingParams) -> int:
    for index, prompt in enumerate(PROMPTS):
        whole = [*prompt, *(token for token, _ in alone(kind)[index])]
        if sampling == params(index) and list(prefix) == whole[: len(prefix)] != whole:
            return whole[len(prefix)]
    return 0


def drafter_of(name: str, kind: str, k: int = 2) -> Drafter:
    known = functools.partial(next_token, kind)
    if name == "exact":
        return ExactKDrafter(known, k=k, vocab_size=VOCAB)
    return {"oracle": OracleDrafter, "anti": AntiDrafter}[name](known, vocab_size=VOCAB)


def k_fits(name: str, depth: int) -> bool:
    """The exact-2 drafter's first two tokens are right, and there are no more."""
    return name == "exact" and depth <= 2


TWICE = [(f"{turn}-{i}", i) for turn in "ab" for i in range(len(PROMPTS))]


def expected(kind: str) -> dict[str, Written]:
    return {name: alone(kind)[index] for name, index in TWICE}


@pytest.mark.parametrize("kind", KINDS)
def test_bits_do_not_depend_on_the_batch_or_on_chunks(kind: str) -> None:
    for rows in (512, 13):
        engine = native_engine(kind, max_rows=rows, prefix=False)
        assert written(engine, TWICE, rows) == expected(kind)


@pytest.mark.parametrize("depth", range(1, 9))
@pytest.mark.parametrize("name", ["oracle", "anti", "exact"])
def test_bits_do_not_depend_on_speculation(name: str, depth: int) -> None:
    kind = KINDS[depth % len(KINDS)]
    engine = native_engine(kind, drafter_of(name, kind), depth, prefix=False)
    assert written(engine, TWICE, depth) == expected(kind)
    assert engine.stats.drafted > 0
    share = engine.stats.accepted / engine.stats.drafted
    assert (share == 1, share == 0) == (name == "oracle" or k_fits(name, depth), name == "anti")


@pytest.mark.parametrize("kind", KINDS)
def test_bits_do_not_depend_on_prefix_hits(kind: str) -> None:
    engine = native_engine(kind, drafter_of("exact", kind), 3, max_num_seqs=3)
    assert written(engine, TWICE) == expected(kind)
    assert engine.stats.prefix_hits > 0


@pytest.mark.parametrize("kind", KINDS)
def test_bits_do_not_depend_on_preemption(kind: str) -> None:
    engine = native_engine(
        kind, drafter_of("exact", kind), 4, max_model_len=104, blocks=26, block_size=4, max_rows=30
    )
    assert written(engine, TWICE) == expected(kind)
    assert engine.stats.preemptions > 0


def test_a_request_taken_over_half_way_goes_on_with_the_same_bits() -> None:
    engine = native_engine("qwen3", prefix=False)
    for index, text in enumerate(alone("qwen3")):
        output = tuple(token for token, _ in text[:10])
        engine.add(request(f"r{index}", PROMPTS[index], params(index), output_ids=output))
    rest: dict[str, Written] = {f"r{i}": [] for i in range(len(PROMPTS))}
    for event in drain(engine):
        rest[event.request_id] += zip(event.tokens, event.logprobs, strict=True)
    assert list(rest.values()) == [text[10:] for text in alone("qwen3")]


def test_eager_and_native_write_the_same_tokens_in_float32() -> None:
    for kind in KINDS:
        model = make_model(kind, torch.float32)
        eager_engine, native_one = make_engine(model), make_engine(model)
        native_one.target = make_native(model)[1]
        arrivals = [(str(i), i) for i in range(len(PROMPTS))]
        want = {n: [t for t, _ in w] for n, w in written(eager_engine, arrivals).items()}
        got = {n: [t for t, _ in w] for n, w in written(native_one, arrivals).items()}
        assert got == want
