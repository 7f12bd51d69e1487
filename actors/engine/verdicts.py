"""From segments to verdicts, and from verdicts to what is told of them."""

from __future__ import annotations

import time

from actors.engine.batch import Segment, pack
from actors.engine.events import EngineStats, TokenEvent
from actors.engine.executor import Executor
from actors.engine.kv import KVPool
from actors.sampling.decide import Span, Verdict, decide
from actors.sampling.rules import DEFAULT, Rule


def verify(
    target: Executor,
    pool: KVPool,
    segments: list[Segment],
    stats: EngineStats,
    rule: Rule = DEFAULT,
) -> list[Verdict | None]:
    """One forward. Verdicts of the segments that decide; None for inner chunks of a prefill."""
    batch = pack(segments, target.device)
    began = time.perf_counter()
    logits = target.forward(batch, pool)
    forwarded = time.perf_counter()
    stats.forward_s += forwarded - began
    spans, start = list[Span](), 0
    for segment in segments:
        if segment.decides:
            spans.append(_span(segment, start, target.info.eos_ids, rule))
            start += 1 + len(segment.block)
    decided = iter(decide(logits, spans))
    stats.sample_s += time.perf_counter() - forwarded
    return [next(decided) if segment.decides else None for segment in segments]


def undrafted(segment: Segment) -> Segment:
    """The same rows without the block: a drafted token whose own row is not finite poisons the
    rows beside it, and a drafter may only cost time (law L2). The KV is simply rewritten."""
    segment.sequence.depth_reason = "fault"
    return Segment(segment.sequence, segment.count)


def event_of(
    segment: Segment,
    verdict: Verdict,
    tokens: tuple[int, ...],
    *,
    first: bool,
    started_ns: int,
    ended_ns: int,
) -> TokenEvent:
    """`tokens`: what of the verdict was committed."""
    seq, draft = segment.sequence, segment.draft
    return TokenEvent(
        seq.request_id,
        tokens,
        logprobs=(verdict.logprobs or ())[: len(tokens)],
        drafted=len(segment.block),
        accepted=min(verdict.accepted, len(tokens)),
        mechanism=draft.mechanism if draft else "",
        reason="prefill" if first and not draft else seq.depth_reason,
        remote=draft.remote if draft else False,
        trace=(seq.request.traceparent, seq.request.tracestate),
        arrived_ns=seq.arrived_ns,
        admitted_ns=seq.admitted_ns,
        started_ns=started_ns,
        ended_ns=ended_ns,
        first=first,
        cached_tokens=seq.cached_len if first else 0,
    )


def _span(segment: Segment, start: int, eos_ids: frozenset[int], rule: Rule) -> Span:
    seq = segment.sequence
    return Span(
        start=start,
        block=segment.block,
        params=seq.sampling,
        tokens=seq.tokens,
        prompt_len=seq.prompt_len,
        eos_ids=eos_ids,
        laws=segment.draft.law if segment.draft else None,
        rule=rule,
    )
