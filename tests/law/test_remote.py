"""The laws over the real wire: engine, port, gRPC and a drafter's server (L1, L2, L3, features)."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch

from actors.contracts import Drafter
from actors.engine.core import Engine
from actors.exchange.compat import Compat
from actors.exchange.gathering import Patience
from actors.exchange.link import Endpoint
from actors.exchange.pool import PortOptions, RemotePort
from actors.exchange.server import DraftingServer
from actors.sampling.params import SamplingParams
from tests.drafters.anti import AntiDrafter
from tests.drafters.exact_k import ExactKDrafter
from tests.drafters.failing import FailingDrafter
from tests.drafters.feature_receiver import FeatureReceiver
from tests.drafters.oracle import OracleDrafter
from tests.law.harness import GREEDY, SAMPLED, assert_pools_full, make_engine, plain, request, run
from tests.law.test_features import TAPS, hidden_states
from tests.models import make_rand
from tests.unit.actors.exchange.helpers import wait_for

MODEL = make_rand(layers=3)
PROMPTS = [[(5 * i + 2) % 128 for i in range(21)], [9, 2, 6], [5, 3, 5, 8], [2, 7, 1, 8, 2]]
PATIENT = PortOptions(patience=Patience(fixed_wait_s=5.0))


class Texts:
    """What the target writes after each prompt, as a function for drafters that know."""

    def __init__(self, sampling: SamplingParams) -> None:
        self.own = [plain(MODEL, p, sampling) for p in PROMPTS]

    def next_token(self, prefix, params) -> int:
        for prompt, own in zip(PROMPTS, self.own, strict=True):
            whole = [*prompt, *own]
            if list(prefix) == whole[: len(prefix)] and len(prefix) < len(whole):
                return whole[len(prefix)]
        return 0


TEXTS = {"greedy": Texts(GREEDY), "coupled": Texts(SAMPLED)}


@contextmanager
def remote_engine(
    *drafters: Drafter, depth: int = 4, options: PortOptions = PATIENT, **keywords
) -> Iterator[tuple[Engine, list[DraftingServer]]]:
    """An engine whose drafters each stand behind a gRPC server of their own."""
    servers = [
        DraftingServer(d, name=f"d{i}", compat=Compat(taps=d.info.taps))
        for i, d in enumerate(drafters)
    ]
    endpoints = [Endpoint(f"d{i}", f"127.0.0.1:{s.start()}") for i, s in enumerate(servers)]
    taps = drafters[0].info.taps if drafters else ()
    port = RemotePort("v", compat=Compat(taps=taps), vocab_size=128, options=options)
    port.set_endpoints(endpoints)
    engine = make_engine(MODEL, port=port, depth=depth, **keywords)
    try:
        wait_for(lambda: all(link.up for link in port.status()))
        yield engine, servers
    finally:
        engine.shutdown()
        for server in servers:
            server.stop(0.0)


@pytest.mark.parametrize("depth", [1, 4, 8])
@pytest.mark.parametrize("max_rows", [8, 512])
def test_features_over_grpc_equal_a_no_cache_forwards(max_rows: int, depth: int) -> None:
    """Rows from_len-1 … from_len+m-1 with every commit, the prompt's own before the first."""
    texts = TEXTS["greedy"]
    drafter = FeatureReceiver(TAPS, 128, texts.next_token)
    with remote_engine(drafter, depth=depth, max_rows=max_rows, max_num_seqs=4) as (engine, _):
        names = {str(i): own for i, own in enumerate(texts.own)}
        assert run(engine, *(request(str(i), p) for i, p in enumerate(PROMPTS))) == names
        assert engine.stats.accepted == engine.stats.drafted > 0
    assert drafter.faults == []
    assert len(drafter.log) == len(PROMPTS)
    for key in drafter.log:
        index = int(key.request)
        rows = drafter.received(key)
        expected = hidden_states(MODEL, [*PROMPTS[index], *texts.own[index]])
        assert rows.shape[0] > len(PROMPTS[index])
        torch.testing.assert_close(rows, expected[: rows.shape[0]], atol=0.0, rtol=2**-7)


@pytest.mark.parametrize("rule", ["greedy", "coupled"])
@pytest.mark.parametrize("kind", ["oracle", "exact-2", "anti"])
def test_remote_drafters_give_the_targets_own_text(kind: str, rule: str) -> None:
    texts = TEXTS[rule]
    sampling = GREEDY if rule == "greedy" else SAMPLED
    drafter = {
        "oracle": lambda: OracleDrafter(texts.next_token, 128),
        "exact-2": lambda: ExactKDrafter(texts.next_token, 128, k=2),
        "anti": lambda: AntiDrafter(texts.next_token, 128),
    }[kind]()
    with remote_engine(drafter) as (engine, _):
        got = run(engine, *(request(str(i), p, sampling) for i, p in enumerate(PROMPTS)))
        assert got == {str(i): own for i, own in enumerate(texts.own)}
        assert engine.stats.drafted > 0
        if kind == "oracle":
            assert engine.stats.accepted == engine.stats.drafted
        assert_pools_full(engine)
        wait_for(lambda: not drafter.sessions)


@pytest.mark.parametrize("rule", ["greedy", "coupled"])
def test_a_drafter_lost_half_way_is_replaced_and_the_text_stays(rule: str) -> None:
    texts = TEXTS[rule]
    sampling = GREEDY if rule == "greedy" else SAMPLED
    drafters = [OracleDrafter(texts.next_token, 128) for _ in range(2)]
    with remote_engine(*drafters) as (engine, servers):
        for i, p in enumerate(PROMPTS):
            engine.add(request(str(i), p, sampling))
        got: dict[str, list[int]] = {str(i): [] for i in range(len(PROMPTS))}
        steps = 0
        while engine.has_work:
            for event in engine.step():
                got[event.request_id].extend(event.tokens)
            steps += 1
            if steps == 3:
                servers[0].stop(0.0)
        assert got == {str(i): own for i, own in enumerate(texts.own)}
        assert drafters[0].calls > 0
        assert drafters[1].calls > 0


@pytest.mark.parametrize("fault", ["raise", "session", "nan", "range", "length", "base", "missing"])
def test_a_faulty_remote_drafter_costs_time_only(fault: str) -> None:
    texts = TEXTS["greedy"]
    drafter = FailingDrafter(fault, 2, 128, times=0, next_token=texts.next_token)
    quick = PortOptions(patience=Patience(fixed_wait_s=0.2))
    with remote_engine(drafter, options=quick) as (engine, _):
        got = run(engine, *(request(str(i), p) for i, p in enumerate(PROMPTS)))
        assert got == {str(i): own for i, own in enumerate(texts.own)}
        assert drafter.failures > 0
        assert_pools_full(engine)


def test_a_thousand_random_aborts_leave_both_sides_empty() -> None:
    """L3 over the wire."""
    rng = random.Random(0)
    drafter = ExactKDrafter(TEXTS["greedy"].next_token, 128, k=3)
    params = SamplingParams(temperature=0.0, max_tokens=12)
    instant = PortOptions(patience=Patience(fixed_wait_s=0.0))
    with remote_engine(drafter, options=instant, blocks=24, max_model_len=64, max_num_seqs=4) as (
        engine,
        _,
    ):
        aborted = added = 0
        while aborted < 1000:
            while len(engine.sequences) < 8:
                prompt = [rng.randrange(128) for _ in range(rng.randint(1, 9))]
                engine.add(request(f"r{added}", prompt, params))
                added += 1
            for _ in range(rng.randint(0, 2)):
                engine.step()
            for name in rng.sample(sorted(engine.sequences), min(5, len(engine.sequences))):
                aborted += engine.abort(name)
        for name in list(engine.sequences):
            engine.abort(name)
        assert_pools_full(engine)
        assert [link.sessions for link in engine.port.status()] == [0]
        wait_for(lambda: not drafter.sessions)
