"""Engines for the law tests: tiny fp64 models, exact, no Ray and no network."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from actors.contracts import Drafter, DraftPort, Gathered, PortCommit, SessionView
from actors.engine.attention import ATTENTION
from actors.engine.core import Engine, drain
from actors.engine.events import TokenEvent
from actors.engine.noport import NoDrafts
from actors.engine.plan import Plan
from actors.engine.sequence import EngineRequest
from actors.engine.target import Target
from actors.exchange.local import LocalPort
from actors.exchange.status import LinkRecord
from actors.sampling.params import SamplingParams
from actors.sampling.rules import DEFAULT, Rule
from policies.choice import Arm

torch.set_num_threads(1)

GREEDY = SamplingParams(temperature=0.0, max_tokens=24)
SAMPLED = SamplingParams(temperature=1.0, seed=42, max_tokens=24)


def make_engine(
    model: Any,
    drafter: Drafter | None = None,
    depth: int = 4,
    *,
    port: DraftPort | None = None,
    max_model_len: int = 256,
    blocks: int = 64,
    block_size: int = 8,
    max_rows: int = 512,
    max_num_seqs: int = 32,
    prefix: bool = True,
    rule: Rule = DEFAULT,
) -> Engine:
    """An engine over `model`, drafting at a fixed depth with a co-located drafter or a port."""
    model.set_attn_implementation(ATTENTION)
    if port is None:
        port = LocalPort(drafter) if drafter is not None else NoDrafts()
    return Engine(
        Target(model, taps=port.taps),
        port,
        Plan(depth),
        num_blocks=blocks,
        block_size=block_size,
        max_model_len=max_model_len,
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=max_rows,
        enable_prefix_caching=prefix,
        rule=rule,
        stall_s=math.inf,  # what runs with what never depends on how busy the machine is
    )


def request(
    name: str, prompt: Sequence[int], sampling: SamplingParams = GREEDY, **keywords: Any
) -> EngineRequest:
    return EngineRequest(name, tuple(prompt), sampling, **keywords)


def run(engine: Engine, *requests: EngineRequest) -> dict[str, list[int]]:
    """All requests at once, to the end; output ids by request id."""
    texts: dict[str, list[int]] = {r.request_id: [] for r in requests}
    for r in requests:
        for event in engine.add(r):
            texts[event.request_id].extend(event.tokens)
    for event in drain(engine):
        assert event.error is None, event.error
        texts[event.request_id].extend(event.tokens)
    return texts


def events_of(engine: Engine, *requests: EngineRequest) -> list[TokenEvent]:
    events: list[TokenEvent] = []
    for r in requests:
        events.extend(engine.add(r))
    events.extend(drain(engine))
    return events


@torch.inference_mode()
def plain(model: Any, prompt: Sequence[int], sampling: SamplingParams = GREEDY) -> list[int]:
    """The reference: one full forward a token, no cache, the sampler row by row."""
    from actors.sampling.decide import Span, decide

    model.set_attn_implementation("sdpa")
    tokens = list(prompt)
    eos = model.generation_config.eos_token_id
    ends = frozenset([eos] if isinstance(eos, int) else eos or [])
    while len(tokens) - len(prompt) < sampling.max_tokens:
        logits = model(input_ids=torch.tensor([tokens]), use_cache=False).logits[0, -1:]
        span = Span(0, (), sampling, tokens, len(prompt), ends)
        token = decide(logits, [span])[0].tokens[0]
        tokens.append(token)
        if (token in ends and not sampling.ignore_eos) or token in sampling.stop_token_ids:
            break
    return tokens[len(prompt) :]


def assert_pools_full(engine: Engine) -> None:
    """Law L3 on the engine's side: nothing is held when nothing runs."""
    assert not engine.sequences
    assert not engine.scheduler.running
    assert not engine.scheduler.waiting
    assert engine.allocator.free == engine.allocator.num_blocks
    assert engine.scheduler.places.free == engine.scheduler.places.count


def seeded(sampling: SamplingParams, seed: int) -> SamplingParams:
    return replace(sampling, seed=seed)


class SchedulePort:
    """A port that replays a D schedule: wraps another and cuts each block to the next length."""

    def __init__(self, inner: DraftPort, schedule: Sequence[int]) -> None:
        self._inner, self._schedule, self._turn = inner, list(schedule), 0
        self.taps = inner.taps

    @property
    def arms(self) -> tuple[Arm, ...]:
        return self._inner.arms

    def open(self, view: SessionView) -> None:
        self._inner.open(view)

    def prefilled(self, request_id: str, rows: int) -> None:
        self._inner.prefilled(request_id, rows)

    def commit(self, commits: Sequence[PortCommit]) -> None:
        self._inner.commit(commits)

    def gather(self, wanted: dict[str, int], worth_s: Mapping[str, float]) -> Gathered:
        gathered = self._inner.gather(wanted, worth_s)
        drafts = {}
        for request_id, draft in gathered.drafts.items():
            length = self._schedule[self._turn % len(self._schedule)]
            self._turn += 1
            drafts[request_id] = draft.cut(length)
        return replace(gathered, drafts=drafts)

    def close(self, request_id: str, reason: str) -> None:
        self._inner.close(request_id, reason)

    def status(self) -> list[LinkRecord]:
        return self._inner.status()

    def shutdown(self) -> None:
        self._inner.shutdown()
