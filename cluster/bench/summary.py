"""From measured cells to figures: medians over runs, ratios to standard decode, acceptance.

A run of a server that may keep something across requests counts only while its prompts were new
to that server; the others are told apart and reported beside (pitfall S58).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cluster.bench.attempt import Attempt
from cluster.bench.legs import Leg
from cluster.bench.positions import Position, rates, total
from cluster.bench.sample import Sample, served
from cluster.bench.schedule import Setting
from cluster.bench.split import Split, split_of
from cluster.bench.stats import Pair, Ratio, Spread, median, ratio, spread


@dataclass(frozen=True, slots=True)
class RunFigures:
    """One leg, one setting, one run. Rates in tokens a second: output_rate over the wall clock of
    all clients, per device as well; decode_rate of one stream after its first token, the
    interactivity. repeated: of its prompts, how many the server had answered before."""

    run: int
    requests: int
    failed: int
    repeated: int
    wall_s: float
    output_tokens: int
    output_rate: float
    output_rate_per_device: float
    decode_rate: float | None
    acceptance_length: float | None
    busy: float | None


@dataclass(frozen=True, slots=True)
class CategoryFigures:
    """acceptance_length: tokens a forward pass after the first token."""

    category: str
    requests: int
    decode_rate: float | None
    acceptance_length: float | None


@dataclass(frozen=True, slots=True)
class LegFigures:
    """Everything about one leg in one setting. Latencies in seconds, over all requests of the runs
    that count; rates are medians over runs. identical: answers equal to standard decode's, of
    `compared`. replayed_acceptance_length: of runs left out because the server knew the prompts."""

    leg: str
    mechanism: str
    placement: str | None
    depth: int
    temperature: float
    load: str
    devices: int
    runs: tuple[RunFigures, ...]
    output_rate: float | None
    output_rate_per_device: float | None
    decode_rate: float | None
    ttft: Spread | None
    itl: Spread | None
    tpot: Spread | None
    acceptance_length: float | None
    rounds_drafted: int
    drafted: int
    accepted: int
    ratio_decode: Ratio | None
    ratio_output: Ratio | None
    identical: int
    compared: int
    categories: tuple[CategoryFigures, ...]
    positions: tuple[Position, ...]
    split: Split | None
    reasons: tuple[str, ...]
    repeated: int
    replayed_runs: int
    replayed_acceptance_length: float | None


def summarise(
    leg: Leg,
    setting: Setting,
    attempts: Sequence[Attempt],
    base: Sequence[Attempt],
    *,
    devices: int,
    keeps: bool,
) -> LegFigures:
    """attempts, base: of this leg and of standard decode in this setting, none refused. keeps:
    the server may draft from, or prefill from, what it did for earlier requests."""
    replayed = [a for a in attempts if keeps and a.repeated]
    counted = [a for a in attempts if not (keeps and a.repeated)]
    runs = tuple(_run(a, devices) for a in counted)
    samples = [s for a in counted for s in served(a.samples)]
    both = _pairs(counted, base)
    return LegFigures(
        leg=leg.name,
        mechanism=leg.mechanism,
        placement=leg.placement,
        depth=leg.depth,
        temperature=setting.temperature,
        load=setting.load.name,
        devices=devices,
        runs=runs,
        output_rate=median([run.output_rate for run in runs]),
        output_rate_per_device=median([run.output_rate_per_device for run in runs]),
        decode_rate=median([run.decode_rate for run in runs if run.decode_rate is not None]),
        ttft=spread([s.ttft_s for s in samples]),
        itl=spread([gap for s in samples for gap in s.gaps_s]),
        tpot=spread([s.tpot_s for s in samples if s.tpot_s is not None]),
        acceptance_length=acceptance_length(samples),
        rounds_drafted=sum(s.rounds for s in samples),
        drafted=sum(s.drafted for s in samples),
        accepted=sum(s.accepted for s in samples),
        ratio_decode=None if leg.standard else ratio([_decode_pair(s, b) for s, b in both]),
        ratio_output=None if leg.standard else ratio(_output_pairs(counted, base)),
        identical=sum(s.output == b.output for s, b in both),
        compared=len(both),
        categories=_categories(samples),
        positions=tuple(rates(total([a.positions for a in counted]))),
        split=split_of(counted),
        reasons=tuple(sorted({reason for s in samples for reason in s.reasons})),
        repeated=sum(a.repeated for a in attempts),
        replayed_runs=len(replayed),
        replayed_acceptance_length=acceptance_length(
            [s for a in replayed for s in served(a.samples)]
        ),
    )


def acceptance_length(samples: Sequence[Sample]) -> float | None:
    """Delivered tokens a forward pass, the first token of each answer apart; 1 is standard
    decode. None when there was no such pass."""
    rounds = sum(s.decode_rounds for s in samples)
    return sum(s.decode_tokens for s in samples) / rounds if rounds else None


def decode_rate(samples: Sequence[Sample]) -> float | None:
    """Tokens a second of one stream after its first token, long answers weighing more."""
    seconds = sum(s.decode_s for s in samples)
    return sum(s.decode_tokens for s in samples) / seconds if seconds else None


def _run(attempt: Attempt, devices: int) -> RunFigures:
    answered = served(attempt.samples)
    tokens = sum(s.tokens for s in answered)
    rate = tokens / attempt.wall_s if attempt.wall_s > 0 else 0.0
    return RunFigures(
        run=attempt.cell.run,
        requests=len(attempt.samples),
        failed=len(attempt.samples) - len(answered),
        repeated=attempt.repeated,
        wall_s=attempt.wall_s,
        output_tokens=tokens,
        output_rate=rate,
        output_rate_per_device=rate / devices,
        decode_rate=decode_rate(answered),
        acceptance_length=acceptance_length(answered),
        busy=attempt.busy,
    )


def _pairs(ours: Sequence[Attempt], base: Sequence[Attempt]) -> list[tuple[Sample, Sample]]:
    """Answers to the same prompt in the same run, where both legs gave one."""
    theirs = {a.cell.run: a.samples for a in base}
    return [
        (sample, other)
        for a in ours
        for sample, other in zip(a.samples, theirs.get(a.cell.run, ()), strict=False)
        if not sample.error and not other.error
    ]


def _decode_pair(ours: Sample, base: Sample) -> Pair:
    return Pair(ours.decode_tokens, ours.decode_s, base.decode_tokens, base.decode_s)


def _output_pairs(ours: Sequence[Attempt], base: Sequence[Attempt]) -> list[Pair]:
    theirs = {a.cell.run: a for a in base}
    return [
        Pair(_tokens(a), a.wall_s, _tokens(theirs[a.cell.run]), theirs[a.cell.run].wall_s)
        for a in ours
        if a.cell.run in theirs
    ]


def _tokens(attempt: Attempt) -> int:
    return sum(s.tokens for s in served(attempt.samples))


def _categories(samples: Sequence[Sample]) -> tuple[CategoryFigures, ...]:
    groups: dict[str, list[Sample]] = {}
    for sample in samples:
        groups.setdefault(sample.category, []).append(sample)
    return tuple(
        CategoryFigures(name, len(group), decode_rate(group), acceptance_length(group))
        for name, group in sorted(groups.items())
    )
