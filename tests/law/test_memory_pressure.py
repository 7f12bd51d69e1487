"""One text, whatever memory does: cached or not, chunked or not, preempted or not, at every D."""

from __future__ import annotations

import gc
import random
from collections.abc import Sequence

import pytest
import torch

from actors.contracts import Drafter
from actors.engine.core import Engine, drain
from actors.sampling.params import SamplingParams
from tests.drafters.anti import AntiDrafter
from tests.drafters.oracle import OracleDrafter
from tests.law.harness import SAMPLED, assert_pools_full, make_engine, plain, request, seeded
from tests.models import make_const, make_rand

STEM = [(11 * i + 3) % 128 for i in range(18)]
GREEDY = SamplingParams(temperature=0.0, max_tokens=20)


class Case:
    """A random tiny model, prompts with stems in common, and what it writes after them."""

    def __init__(self, seed: int, dtype: torch.dtype = torch.float64) -> None:
        rng = random.Random(seed)
        self.model = make_rand(seed=seed, dtype=dtype)
        self.prompts = [
            [*STEM[: rng.choice((0, 8, 18))], *(rng.randrange(128) for _ in range(n))]
            for n in (1, 3, 9, 26, 5, 14)
        ]
        self.sampling = [
            GREEDY if i % 2 else seeded(SAMPLED, 70 + i) for i in range(len(self.prompts))
        ]
        self.texts = [
            plain(self.model, p, s) for p, s in zip(self.prompts, self.sampling, strict=True)
        ]

    def next_token(self, prefix: Sequence[int], params: SamplingParams) -> int:
        for prompt, sampling, text in zip(self.prompts, self.sampling, self.texts, strict=True):
            whole = [*prompt, *text]
            if params == sampling and list(prefix) == whole[: len(prefix)] != whole:
                return whole[len(prefix)]
        return 0

    def drafter(self, kind: str) -> Drafter:
        return {"oracle": OracleDrafter, "anti": AntiDrafter}[kind](self.next_token, vocab_size=128)


PRESSURES = ((True, 512, 200), (True, 7, 22), (False, 7, 22), (True, 512, 18))
"""Whether prefixes are shared, rows of a forward, blocks of four tokens; D takes two of them."""

CASES = [Case(0), Case(1), Case(2, torch.float32)]


def finish(engine: Engine, case: Case, rng: random.Random) -> dict[str, list[int]]:
    """All prompts twice, arriving step by step, with others that are aborted in the middle."""
    texts: dict[str, list[int]] = {}
    arrivals = [(f"{turn}-{i}", i) for turn in "ab" for i in range(len(case.prompts))]
    doomed = 0
    while arrivals or engine.has_work:
        for _ in range(min(len(arrivals), rng.randint(0, 3))):
            name, i = arrivals.pop(0)
            engine.add(request(name, case.prompts[i], case.sampling[i]))
            texts[name] = []
            if rng.random() < 0.4:
                doomed += 1
                engine.add(request(f"doomed-{doomed}", case.prompts[i], case.sampling[i]))
        for event in engine.step():
            if not event.request_id.startswith("doomed"):
                texts[event.request_id].extend(event.tokens)
        for name in [n for n in engine.sequences if n.startswith("doomed")]:
            if rng.random() < 0.3:
                engine.abort(name)
    assert doomed
    return texts


@pytest.mark.parametrize("kind", ["oracle", "anti"])
@pytest.mark.parametrize("depth", range(1, 9))
def test_cached_chunked_and_preempted_requests_write_the_same_text(depth: int, kind: str) -> None:
    case = CASES[depth % 3]
    expected = {f"{turn}-{i}": text for turn in "ab" for i, text in enumerate(case.texts)}
    seen = {"hits": 0, "preemptions": 0}
    for prefix, max_rows, blocks in PRESSURES[depth % 2 :: 2]:
        engine = make_engine(
            case.model,
            case.drafter(kind),
            depth,
            blocks=blocks,
            block_size=4,
            max_model_len=72,
            max_rows=max_rows,
            max_num_seqs=6,
            prefix=prefix,
        )
        assert finish(engine, case, random.Random(depth)) == expected
        seen["hits"] += engine.stats.prefix_hits
        seen["preemptions"] += engine.stats.preemptions
        assert_pools_full(engine)
        assert [link.sessions for link in engine.port.status()] == [0]
    assert all(seen.values()), seen


def test_ten_thousand_requests_leave_nothing_behind() -> None:
    """Objects the collector knows, names in the cache, blocks: as many after 10,000 as after
    1,000."""
    engine = make_engine(make_const([0.5, 0.3, 0.2]), blocks=96, block_size=2, max_model_len=16)
    rng = random.Random(0)
    lengths = [SamplingParams(temperature=0.0, max_tokens=n) for n in (1, 1, 1, 3)]
    counts = []
    for turn in range(1, 11):
        for i in range(1000):
            prompt = [rng.randrange(3) for _ in range(rng.randint(1, 7))]
            tenant = f"tenant-{turn}-{i // 100}-{i % 2}"
            engine.add(request(f"{turn}-{i}", prompt, rng.choice(lengths), tenant=tenant))
            if i % 10 == 0:
                engine.abort(f"{turn}-{i}")
            if i % 100 == 99:
                for _ in drain(engine):
                    pass
        assert_pools_full(engine)
        assert engine.prefix is not None
        assert len(engine.prefix) == engine.allocator.idle <= 96
        gc.collect()
        counts.append(len(gc.get_objects()))
    assert engine.stats.prefix_hits > 0
    assert max(counts[1:]) - counts[0] < 100, counts
