"""Rank 0 and real rank processes: who decides, and what the loss of a rank does."""

from __future__ import annotations

import multiprocessing
import os
import queue
import signal
import threading
from functools import partial
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Connection
from typing import Any

import pytest
import torch

from actors.drafters.config import DrafterConfig
from actors.drafters.table import build_drafter
from actors.engine.core import Engine
from actors.engine.errors import EngineError, ModelLoadError
from actors.engine.loading import load_model
from actors.engine.options import EngineOptions
from actors.engine.tp import rank as rank_module
from actors.engine.tp.lead import Lead
from actors.engine.tp.loading import check_sharded
from actors.engine.tp.rendezvous import LOOPBACK, Patience, Rendezvous
from actors.engine.tp.target import RankTarget
from actors.exchange.local import LocalPort
from actors.sampling.params import SamplingParams
from tests.law.harness import request, run
from tests.models import make_rand, save_tiny
from tests.ranks import PATIENCE, Group, be_rank, group

WAIT_S = 30.0
STEPS = 200


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return save_tiny(make_rand(dtype=torch.float32), tmp_path_factory.mktemp("llama"))


class NoisyTarget(RankTarget):
    """A rank whose logits are off by a hair; it tells what it was fed and would have decided."""

    witness: Connection

    def forward(self, batch: Any, pool: Any) -> torch.Tensor:
        logits = super().forward(batch, pool)
        noisy = logits + 1e-6 * torch.randn(logits.shape)
        self.witness.send((batch.ids.tolist(), noisy.argmax(-1).tolist()))
        return logits


def be_noisy_rank(
    witness: Connection, options: EngineOptions, rendezvous: Rendezvous, rank: int
) -> None:
    NoisyTarget.witness = witness
    rank_module.RankTarget = NoisyTarget  # type: ignore[misc]
    be_rank(options, rendezvous, rank)


@pytest.mark.timeout(120)
def test_a_rank_that_would_decide_otherwise_changes_nothing_and_holds_nobody_up(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """Pitfall S46: every two neighbouring tokens tie, so noise of 1e-6 turns decisions round."""
    model = make_rand(dtype=torch.float32)
    with torch.no_grad():
        model.lm_head.weight[1::2] = model.lm_head.weight[::2]
    tied = save_tiny(model, tmp_path_factory.mktemp("tied"))
    mine, theirs = multiprocessing.Pipe()
    drafter = build_drafter(DrafterConfig(method="ngram", target_vocab_size=128))
    with group(tied, 2, main=partial(be_noisy_rank, theirs)) as pair:
        engine = pair.engine(LocalPort(drafter, vocab_size=128))
        fed, told = [], []
        forward = engine.target.forward

        def recording(batch: Any, pool: Any) -> torch.Tensor:
            logits = forward(batch, pool)
            fed.append((batch.ids.tolist(), logits.argmax(-1).tolist()))
            told.append(mine.recv())
            return logits

        told.append(mine.recv())  # of the self-check
        engine.target.forward = recording  # type: ignore[method-assign]
        greedy = SamplingParams(temperature=0.0, max_tokens=120)
        while len(fed) < STEPS:
            run(engine, request("a", [1, 2, 3, len(fed) % 128]), request("b", [5, 5, 5], greedy))
    del told[0]
    assert engine.stats.drafted > 0
    assert [ids for ids, _ in told] == [ids for ids, _ in fed]
    assert [own for _, own in told] != [own for _, own in fed]


def ready(pair: Group, losses: queue.SimpleQueue[str]) -> Engine:
    engine = pair.engine()
    pair.lead.guard(losses.put)
    return engine


def test_a_killed_rank_is_noticed_while_nothing_is_to_be_done(folder: str) -> None:
    losses: queue.SimpleQueue[str] = queue.SimpleQueue()
    with group(folder, 2) as pair:
        ready(pair, losses)
        pair.processes[0].kill()
        assert losses.get(timeout=WAIT_S) == "rank 1 has ended"


def test_a_rank_that_hangs_is_noticed_by_its_heartbeat(folder: str) -> None:
    losses: queue.SimpleQueue[str] = queue.SimpleQueue()
    patience = Patience(beat_every_s=0.1, lost_after_s=2.0, join_s=60.0, load_s=60.0)
    with group(folder, 2, patience=patience) as pair:
        ready(pair, losses)
        os.kill(pair.processes[0].pid or 0, signal.SIGSTOP)
        assert losses.get(timeout=WAIT_S) == "rank 1 was silent for 2 s"
        pair.processes[0].kill()  # a stopped process cannot end by itself


class StuckTarget(RankTarget):
    """Lives and beats, and never comes to the collective; the self-check is still computed."""

    steps = 0

    def forward(self, batch: Any, pool: Any) -> torch.Tensor:
        self.steps += 1
        if self.steps > 1:
            threading.Event().wait()
        return super().forward(batch, pool)


def be_stuck_rank(options: EngineOptions, rendezvous: Rendezvous, rank: int) -> None:
    rank_module.RankTarget = StuckTarget  # type: ignore[misc]
    be_rank(options, rendezvous, rank)


def test_a_rank_that_never_comes_to_a_collective_ends_the_step(folder: str) -> None:
    losses: queue.SimpleQueue[str] = queue.SimpleQueue()
    patience = Patience(collective_s=3.0, join_s=60.0, load_s=60.0)
    with group(folder, 2, patience=patience, main=be_stuck_rank) as pair:
        engine = ready(pair, losses)
        engine.add(request("a", [1, 2, 3]))
        events = engine.step()
        assert losses.get(timeout=WAIT_S).startswith("a step failed:")
        assert events[-1].error is not None
        pair.processes[0].kill()


def test_a_rank_killed_in_mid_step_ends_the_step(folder: str) -> None:
    losses: queue.SimpleQueue[str] = queue.SimpleQueue()
    with group(folder, 2) as pair:
        engine = ready(pair, losses)
        engine.add(request("a", [1, 2, 3], SamplingParams(temperature=0.0, max_tokens=200)))
        for _ in range(5):
            engine.step()
        pair.processes[0].kill()
        while engine.has_work:
            events = engine.step()
        assert losses.get(timeout=WAIT_S)
        assert events[-1].error is not None


def test_the_others_end_when_rank_0_does(folder: str) -> None:
    with group(folder, 2) as pair:
        pair.engine()
        for channel in pair.lead._channels.values():
            channel.close()  # as the end of its process would, without a word
        pair.processes[0].join(WAIT_S)
        assert pair.processes[0].exitcode == 1


def be_failing_rank(options: EngineOptions, rendezvous: Rendezvous, rank: int) -> None:
    def load_shard(*args: Any) -> None:
        raise ModelLoadError("no such weights on this rank")

    rank_module.load_shard = load_shard
    be_rank(options, rendezvous, rank)


def test_a_rank_that_cannot_load_says_why(folder: str) -> None:
    reason = "rank 1: no such weights on this rank"
    with (
        group(folder, 2, main=be_failing_rank) as pair,
        pytest.raises(ModelLoadError, match=reason),
    ):
        pair.engine()


def be_other_rank(options: EngineOptions, rendezvous: Rendezvous, rank: int) -> None:
    rank_module.resolve_dtype = lambda *args: torch.float64
    be_rank(options, rendezvous, rank)


def test_a_rank_with_another_shard_is_refused(folder: str) -> None:
    reason = "rank 1 loaded .*float64.*rank 0 .*float32"
    with group(folder, 2, main=be_other_rank) as pair, pytest.raises(ModelLoadError, match=reason):
        pair.engine()


def test_a_model_that_cannot_be_cut_is_refused_before_anybody_is_waited_for(folder: str) -> None:
    lead = Lead(4, PATIENCE)
    try:
        with pytest.raises(ModelLoadError, match="does not divide its 2 KV heads"):
            lead.load(EngineOptions(folder, "verifier"), torch.float32)
    finally:
        lead.close()


def test_who_lacks_the_key_is_no_rank_and_who_is_missing_is_named(folder: str) -> None:
    lead = Lead(2, Patience(join_s=0.2))
    try:
        with pytest.raises(AuthenticationError):
            Client((LOOPBACK, lead.rendezvous.control_port), authkey=b"a guess")
        with pytest.raises(EngineError, match=r"rank 1 of 2 did not come within 0\.2 s"):
            lead.load(EngineOptions(folder, "verifier"), torch.float32)
    finally:
        lead.close()


def test_the_key_is_shown_nowhere() -> None:
    lead = Lead(2, PATIENCE)
    try:
        assert "key" not in repr(lead.rendezvous)
    finally:
        lead.close()


def test_a_model_that_came_whole_is_refused(folder: str) -> None:
    with pytest.raises(ModelLoadError, match="llama: layer 0 of 2 was not cut in 2"):
        check_sharded(load_model(folder, None, torch.float32, "cpu"), 2)
