"""A run against an earlier one: absolute figures on a like machine, ratios anywhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cluster.bench.machine import Machine
from cluster.bench.record import Baseline, Record, read
from cluster.bench.summary import LegFigures

# What makes two workloads the same; the rest may differ and the figures still compare.
_WORKLOAD = ("digest", "max_tokens", "ignore_eos")

QUIET = 0.5  # load average: above it somebody else was at work


@dataclass(frozen=True, slots=True)
class Difference:
    """One leg in one setting, now and then; None where a record has no such figure."""

    leg: str
    temperature: float
    load: str
    decode_rate: tuple[float | None, float | None]
    output_rate: tuple[float | None, float | None]
    ttft_p50: tuple[float | None, float | None]
    ratio_decode: tuple[float | None, float | None]


@dataclass(frozen=True, slots=True)
class Comparison:
    """caveats: what keeps absolute figures from meaning anything, in words."""

    baseline: Baseline
    caveats: tuple[str, ...]
    differences: tuple[Difference, ...]


def choose(path: Path, machine: Machine) -> Baseline | None:
    """The baseline of that path; of a folder the newest one of a like machine, else the newest,
    None of an empty one. Raises BenchError for what is no record."""
    if not path.is_dir():
        return read(path)
    found = [read(file) for file in sorted(path.glob("*.json"))]
    return max(found, key=lambda b: (b.machine.like(machine), b.date), default=None)


def compare(record: Record, baseline: Baseline) -> Comparison:
    then = {_key(figures): figures for figures in baseline.figures}
    both = [(now, then[key]) for now in record.figures if (key := _key_of(now)) in then]
    differences = tuple(_difference(now, before) for now, before in both)
    return Comparison(baseline, tuple(_caveats(record, baseline, len(both))), differences)


def _caveats(record: Record, baseline: Baseline, common: int) -> list[str]:
    caveats = []
    if not baseline.machine.like(record.machine):
        caveats.append(
            f"another machine's baseline ({baseline.machine.title}): only ratios compare"
        )
    ours = {
        "digest": record.workload.digest,
        "max_tokens": record.workload.max_tokens,
        "ignore_eos": record.workload.ignore_eos,
    }
    for whose, began in (("the baseline", baseline.busy), ("this run", record.busy[0])):
        if began is not None and began > QUIET:
            caveats.append(f"{whose} began on a busy machine (load average {began:.1f})")
    other = [name for name in _WORKLOAD if baseline.workload.get(name) != ours[name]]
    if other:
        caveats.append(f"another workload ({', '.join(other)} differ)")
    if (baseline.model.get("id"), baseline.model.get("dtype")) != (
        record.model.get("id"),
        record.model.get("dtype"),
    ):
        caveats.append(f"another model ({baseline.model.get('id')}, {baseline.model.get('dtype')})")
    newer = [
        f"{name} {baseline.versions.get(name)} became {now}"
        for name, now in record.versions.items()
        if baseline.versions.get(name) != now
    ]
    if newer:
        caveats.append("versions: " + ", ".join(newer))
    if not common:
        caveats.append("no leg and setting in common")
    return caveats


def _difference(now: LegFigures, then: Mapping[str, Any]) -> Difference:
    return Difference(
        leg=now.leg,
        temperature=now.temperature,
        load=now.load,
        decode_rate=(now.decode_rate, then["decode_rate"]),
        output_rate=(now.output_rate, then["output_rate"]),
        ttft_p50=(now.ttft.p50 if now.ttft else None, (then["ttft"] or {}).get("p50")),
        ratio_decode=(
            now.ratio_decode.value if now.ratio_decode else None,
            (then["ratio_decode"] or {}).get("value"),
        ),
    )


def _key(figures: Mapping[str, Any]) -> tuple[str, float, str]:
    return figures["leg"], figures["temperature"], figures["load"]


def _key_of(figures: LegFigures) -> tuple[str, float, str]:
    return figures.leg, figures.temperature, figures.load


def change(pair: Sequence[float | None]) -> float | None:
    """now over then, less one."""
    now, then = pair
    return now / then - 1 if now is not None and then else None
