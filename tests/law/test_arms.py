"""The laws over several arms at once: a text is the target's whoever drafts each round of it."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace

import pytest
import torch
from typing_extensions import override

from actors.contracts import Drafter, DraftPort, Gathered, PortCommit
from actors.drafters.config import DrafterConfig
from actors.drafters.suffix import SuffixDrafter
from actors.engine.core import Engine
from actors.engine.steering import steered
from actors.exchange.arms import ArmsPort
from actors.exchange.arms_part import Part
from actors.exchange.compat import Compat
from actors.exchange.gathering import Patience
from actors.exchange.link import Endpoint
from actors.exchange.local import LocalPort
from actors.exchange.pool import PortOptions, RemotePort
from actors.exchange.server import DraftingServer
from actors.sampling.params import SamplingParams
from policies.estimate_cost import Sample
from tests.checkpoints.block import VOCAB
from tests.checkpoints.target import target
from tests.law.harness import (
    GREEDY,
    SchedulePort,
    assert_pools_full,
    make_engine,
    plain,
    request,
    run,
)
from tests.law.learned import make
from tests.unit.actors.exchange.helpers import wait_for

torch.set_num_threads(1)

PATIENT = PortOptions(patience=Patience(fixed_wait_s=5.0))
PROMPTS = [[(5 * i + 2) % VOCAB for i in range(21)], [9, 2, 6, 9, 2, 6, 9], [5, 3, 5, 8]]
SAMPLINGS = {
    "greedy": replace(GREEDY, max_tokens=40),
    "coupled": SamplingParams(temperature=1.0, seed=11, max_tokens=40),
}
KINDS = ("EAGLE-3 speculators", "z-lab", "MTP DeepSeek, 3 stages")


class Forced(SchedulePort):
    """Asks another arm each round, and now and then one more for evidence; block lengths vary as
    well. drafted, seen: blocks and shadows by (mechanism, remote)."""

    def __init__(self, inner: DraftPort, seed: int) -> None:
        super().__init__(inner, [8, 0, 3, 1, 8])
        self._rng = random.Random(seed)
        self.drafted: Counter[tuple[str, bool]] = Counter()
        self.seen: Counter[tuple[str, bool]] = Counter()

    @override
    def commit(self, commits: Sequence[PortCommit]) -> None:
        super().commit([self._forced(commit) for commit in commits])

    def _forced(self, commit: PortCommit) -> PortCommit:
        arms = self.arms
        shadow = (self._rng.choice(arms), 3) if arms and self._rng.random() < 0.3 else None
        return replace(commit, arm=self._rng.choice(arms) if arms else None, shadow=shadow)

    @override
    def gather(self, wanted: dict[str, int], worth_s: Mapping[str, float]) -> Gathered:
        gathered = super().gather(wanted, worth_s)
        self.drafted.update((d.mechanism, d.remote) for d in gathered.drafts.values())
        self.seen.update((arm.mechanism, arm.remote) for arm, _ in gathered.shadows.values())
        return gathered


@contextmanager
def served(drafter: Drafter) -> Iterator[RemotePort]:
    """Behind a gRPC server of its own."""
    compat = Compat(taps=drafter.info.taps)
    server = DraftingServer(drafter, name=drafter.info.mechanism, compat=compat)
    port = RemotePort("v", compat=compat, vocab_size=VOCAB, options=PATIENT)
    port.set_endpoints([Endpoint(drafter.info.mechanism, f"127.0.0.1:{server.start()}")])
    try:
        wait_for(lambda: all(link.up for link in port.status()))
        yield port
    finally:
        port.shutdown()
        server.stop(0.0)


def suffix() -> SuffixDrafter:
    return SuffixDrafter(DrafterConfig("suffix", num_speculative_tokens=8))


@contextmanager
def engine_over(*drafters: tuple[Drafter, bool], seed: int = 0) -> Iterator[tuple[Engine, Forced]]:
    """An engine that every round is drafted for by another of these (drafter, remote)."""
    with ExitStack() as stack:
        parts = [
            Part(
                drafter.info.mechanism,
                remote,
                stack.enter_context(served(drafter)) if remote else LocalPort(drafter),
            )
            for drafter, remote in drafters
        ]
        port = Forced(ArmsPort(parts), seed)
        engine = make_engine(target(), port=port, depth=4, max_rows=64)
        yield engine, port
        engine.shutdown()


@pytest.mark.parametrize("rule", ["greedy", "coupled"])
@pytest.mark.parametrize("placement", ["colocated", "remote", "suffix here, learned there"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_text_is_the_targets_whoever_drafts_each_round_of_it(
    kind: str, placement: str, rule: str
) -> None:
    sampling = SAMPLINGS[rule]
    own = {str(i): plain(target(), p, sampling) for i, p in enumerate(PROMPTS)}
    learned, other = make(kind), suffix()
    here, there = placement != "remote", placement != "colocated"
    with engine_over((other, not here), (learned, there)) as (engine, port):
        got = run(engine, *(request(str(i), p, sampling) for i, p in enumerate(PROMPTS)))
        assert got == own
        assert port.drafted[learned.info.mechanism, there] > 0
        assert port.drafted["suffix", not here] > 0
        assert port.seen[learned.info.mechanism, there] > 0
        assert_pools_full(engine)
        wait_for(lambda: not len(learned.sessions))
        assert [link.sessions for link in engine.port.status()] == [0, 0]


@pytest.mark.parametrize("rule", ["greedy", "coupled"])
def test_two_learned_drafters_with_taps_of_their_own_share_one_target(rule: str) -> None:
    sampling = SAMPLINGS[rule]
    own = {str(i): plain(target(), p, sampling) for i, p in enumerate(PROMPTS)}
    eagle, block = make("EAGLE-3 speculators"), make("z-lab")
    with engine_over((eagle, True), (block, False), (suffix(), False), seed=5) as (engine, port):
        assert set(engine.port.taps) == {*eagle.info.taps, *block.info.taps}
        got = run(engine, *(request(str(i), p, sampling) for i, p in enumerate(PROMPTS)))
        assert got == own
        assert {name for name, _ in port.drafted} == {"eagle3", "dflash", "suffix"}
        assert not port.status()[0].faults
        assert not port.status()[1].faults


def test_an_arm_lost_in_mid_text_leaves_its_rounds_to_the_others() -> None:
    own = {str(i): plain(target(), p, SAMPLINGS["greedy"]) for i, p in enumerate(PROMPTS)}
    learned = make("EAGLE-3 speculators")
    with engine_over((suffix(), False), (learned, True)) as (engine, port):
        for i, p in enumerate(PROMPTS):
            engine.add(request(str(i), p, SAMPLINGS["greedy"]))
        got: dict[str, list[int]] = {str(i): [] for i in range(len(PROMPTS))}
        steps = 0
        inner = port._inner
        assert isinstance(inner, ArmsPort)
        while engine.has_work:
            for event in engine.step():
                got[event.request_id].extend(event.tokens)
            steps += 1
            if steps == 8:
                inner.set_endpoints([])
                assert [arm.mechanism for arm in engine.port.arms] == ["suffix"]
        assert got == own
        assert port.drafted["suffix", False] > 0


@pytest.mark.parametrize("rule", ["greedy", "coupled"])
def test_a_text_is_the_targets_where_the_policy_chooses_among_arms(rule: str) -> None:
    """No arm is forced: plans, shadows and control windows come from the engine's own policy."""
    sampling = replace(SAMPLINGS[rule], max_tokens=120)
    own = {str(i): plain(target(), p, sampling) for i, p in enumerate(PROMPTS)}
    learned = make("EAGLE-3 speculators")
    with ExitStack() as stack:
        parts = [
            Part("suffix", False, LocalPort(suffix())),
            Part("eagle3", True, stack.enter_context(served(learned))),
        ]
        engine = make_engine(target(), port=ArmsPort(parts), depth=4)
        costs = [Sample(1, 1.0), Sample(65, 1.1)]
        engine.speculation, engine.steering = steered(costs, "coupled", 4, "seed")
        stack.callback(engine.shutdown)
        got = run(engine, *(request(str(i), p, sampling) for i, p in enumerate(PROMPTS)))
        assert got == own
        assert engine.stats.drafted > 0
        known = {mechanism for _, mechanism in engine.steering.policy.state.estimates}
        assert known >= {"suffix", "eagle3"}
        assert [link.sessions for link in engine.port.status()] == [0, 0]
