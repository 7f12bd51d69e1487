"""The executor computes transformers' models, and a row's bits are its own."""

from __future__ import annotations

import random
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

import pytest
import torch

from actors.engine.batch import Segment, pack
from actors.engine.errors import EngineError
from actors.engine.kv import BlockTable, KVPool
from actors.engine.native.check import check
from actors.engine.sequence import EngineRequest, Sequence, Status
from actors.sampling.params import SamplingParams
from tests.native import KINDS, VOCAB, make_model, make_native, needs_compiler

pytestmark = needs_compiler

TOKENS = 97
TAPS = (0, 1, 3)
BLOCKS = (5, 3, 9, 1, 7, 20, 21, 22, 0, 2, 4, 6, 11)  # scattered over the pool


@dataclass
class Rows:
    logits: torch.Tensor
    features: torch.Tensor
    keys: torch.Tensor
    values: torch.Tensor

    def bits(self) -> list[torch.Tensor]:
        return [
            self.logits.view(torch.int32),
            self.features.view(torch.int16),
            *(t.view(torch.int16) for t in (self.keys, self.values)),
        ]


def sequence(pool: KVPool, count: int, seed: int = 0, blocks: tuple[int, ...] = BLOCKS) -> Sequence:
    table = BlockTable(pool.block_size, "cpu")
    table.extend(list(blocks))
    rng = random.Random(seed)
    ids = [rng.randrange(VOCAB) for _ in range(count)]
    request = EngineRequest(str(seed), tuple(ids), SamplingParams(temperature=0.0))
    return Sequence(request, ids, table, pool, count + 9, 0, Status.RUNNING)


def pool_of(target: Any, blocks: int = 32, block_size: int = 8) -> KVPool:
    """Filled with NaN: whoever reads a row that nobody wrote shows it."""
    pool = KVPool(
        target.info.spec, blocks, block_size, target.info.dtype, "cpu", target.feature_dim
    )
    for tensor in (*pool.keys, *pool.values):
        tensor.fill_(float("nan"))
    return pool


def walk(target: Any, chunks: list[int]) -> Rows:
    """One sequence, fed in chunks; all rows' results."""
    pool = pool_of(target)
    seq = sequence(pool, TOKENS)
    logits = []
    for count in chunks:
        batch = pack([Segment(seq, count)], "cpu")
        batch.keep = torch.arange(count)
        logits.append(target.forward(batch, pool).float())
        seq.kv_len += count
    assert pool.features is not None
    slots = seq.table.slots(0, TOKENS)
    return Rows(
        torch.cat(logits).contiguous(),
        pool.features[slots],
        torch.stack([keys[slots] for keys in pool.keys]),
        torch.stack([values[slots] for values in pool.values]),
    )


@pytest.mark.parametrize("kind", KINDS)
def test_logits_keys_and_features_are_those_of_transformers(kind: str) -> None:
    eager, native = make_native(make_model(kind, torch.float32), TAPS)
    want, got = walk(eager, [TOKENS]), walk(native, [TOKENS])
    for ours, theirs in ((got.logits, want.logits), (got.keys, want.keys)):
        assert (ours - theirs).norm() <= 1e-4 * theirs.norm()
    assert (got.features.float() - want.features.float()).norm() <= 1e-2 * want.features.norm()


@pytest.mark.parametrize("kind", KINDS)
def test_bf16_stays_near_float32(kind: str) -> None:
    model = make_model(kind, torch.bfloat16)
    _, native = make_native(model, TAPS)
    exact, _ = make_native(model.float(), TAPS)
    want, got = walk(exact, [TOKENS]).logits, walk(native, [TOKENS]).logits
    assert (got - want).norm() <= 0.1 * want.norm()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("threads", [1, 3])
def test_a_rows_bits_do_not_depend_on_chunks_or_threads(kind: str, threads: int) -> None:
    model = make_model(kind, torch.bfloat16)
    _, whole = make_native(model, TAPS)
    _, other = make_native(model, TAPS, threads=threads)
    want = walk(whole, [TOKENS]).bits()
    for chunks in ([1] * TOKENS, [2, 3, 4, 5, 6, 7, 8, 9, 10, 43], [64, 1, 32], [31, 33, 33]):
        assert all(map(torch.equal, walk(other, chunks).bits(), want)), chunks


def test_a_rows_bits_do_not_depend_on_batch_mates() -> None:
    _, native = make_native(make_model("qwen3", torch.bfloat16), TAPS)
    want = walk(native, [90, 5, 2]).bits()[0][-7:]
    pool = pool_of(native, blocks=64)
    mates = [sequence(pool, n, n, tuple(range(b, b + 6))) for n, b in ((40, 24), (7, 30), (23, 36))]
    seq = sequence(pool, TOKENS)
    seq.kv_len = 0
    batch = pack([Segment(mates[0], 40), Segment(seq, 90), Segment(mates[1], 7)], "cpu")
    native.forward(batch, pool)
    seq.kv_len = 90
    batch = pack([Segment(mates[2], 23), Segment(seq, 7)], "cpu")
    batch.keep = torch.arange(23, 30)
    got = native.forward(batch, pool).contiguous()
    assert torch.equal(got.view(torch.int32), want)


def test_only_the_rows_asked_for_have_logits() -> None:
    _, native = make_native(make_model("llama", torch.bfloat16), TAPS)
    pool = pool_of(native)
    batch = pack([Segment(sequence(pool, TOKENS), 50)], "cpu")
    assert native.forward(batch, pool).shape == (0, VOCAB)


def test_a_position_outside_the_table_is_refused_before_anything_is_written() -> None:
    _, native = make_native(make_model("llama", torch.bfloat16), max_model_len=50)
    pool = pool_of(native)
    with pytest.raises(EngineError, match="max_model_len"):
        native.forward(pack([Segment(sequence(pool, TOKENS), 51)], "cpu"), pool)
    assert all(bool(keys.isnan().all()) for keys in pool.keys)


def test_a_row_that_is_not_finite_spoils_no_other_sequence() -> None:
    model = make_model("llama", torch.bfloat16)
    with torch.no_grad():
        model.model.embed_tokens.weight[3].fill_(float("nan"))
    _, native = make_native(model, TAPS)
    pool = pool_of(native)
    good, bad = sequence(pool, 9, blocks=(0, 1)), sequence(pool, 9, 1, blocks=(2, 3))
    good.tokens = [t if t != 3 else 4 for t in good.tokens]
    bad.tokens[4] = 3
    batch = pack([Segment(bad, 9), Segment(good, 9)], "cpu")
    batch.keep = torch.arange(18)
    logits = native.forward(batch, pool)
    assert logits[:4].isfinite().all()
    assert logits[4:9].isnan().all()
    assert logits[9:].isfinite().all()


def test_the_check_before_serving_sees_a_wrong_weight() -> None:
    model = make_model("llama", torch.float32)
    eager, native = make_native(model)
    check(native, eager)
    with torch.no_grad():
        model.model.layers[1].self_attn.k_proj.weight[0].mul_(-1.0)
    with pytest.raises(EngineError, match="differs from transformers"):
        check(native, eager)


def test_a_token_outside_the_vocabulary_is_refused_before_anything_is_written() -> None:
    _, native = make_native(make_model("llama", torch.bfloat16))
    pool = pool_of(native)
    batch = pack([Segment(sequence(pool, TOKENS), 9)], "cpu")
    batch.ids[0, 4] = VOCAB
    with pytest.raises(EngineError, match="vocabulary"):
        native.forward(batch, pool)
    assert all(bool(keys.isnan().all()) for keys in pool.keys)


def test_a_closed_executor_says_so() -> None:
    _, native = make_native(make_model("llama", torch.bfloat16))
    native.close()
    pool = pool_of(native)
    with pytest.raises(EngineError, match="closed"):
        native.forward(pack([Segment(sequence(pool, TOKENS), 9)], "cpu"), pool)


NO_THREADS = """
import resource, torch
from actors.engine.native.crew import Crew
from tests.native import make_model, make_native, compiled
model = make_model("llama", torch.bfloat16)
make_native(model, threads=2)  # what is loaded and started at first use is in the size below
size = next(int(l.split()[1]) for l in open("/proc/self/status") if l.startswith("VmSize"))
for start, room in (
    (lambda: make_native(model, threads=64), 2**27),  # weights of 66 MiB, and stacks of some
    (lambda: Crew(compiled(), 64), 2**25),
):
    resource.setrlimit(resource.RLIMIT_AS, (size * 1024 + room, resource.RLIM_INFINITY))
    try:
        start()
    except Exception as error:
        print(type(error).__name__, error)
"""


def test_a_machine_without_threads_or_memory_is_an_error_and_no_crash() -> None:
    done = subprocess.run(
        [sys.executable, "-c", NO_THREADS], timeout=60, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("64 threads") == 2, done.stdout
