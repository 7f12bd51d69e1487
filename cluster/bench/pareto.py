"""The front of throughput against interactivity: what no other point beats in both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cluster.bench.summary import LegFigures


@dataclass(frozen=True, slots=True)
class Point:
    """interactivity: tokens a second of one stream; throughput: tokens a second per device."""

    leg: str
    load: str
    temperature: float
    interactivity: float
    throughput: float


def points(figures: Sequence[LegFigures], temperature: float) -> list[Point]:
    return [
        Point(f.leg, f.load, f.temperature, f.decode_rate, f.output_rate_per_device)
        for f in figures
        if f.temperature == temperature
        and f.decode_rate is not None
        and f.output_rate_per_device is not None
    ]


def front(given: Sequence[Point]) -> list[Point]:
    """The undominated points by rising interactivity; of equal points all stay."""
    best: list[Point] = []
    for point in given:
        beaten = any(
            other.interactivity >= point.interactivity
            and other.throughput >= point.throughput
            and (other.interactivity, other.throughput) != (point.interactivity, point.throughput)
            for other in given
        )
        if not beaten:
            best.append(point)
    return sorted(best, key=lambda p: (p.interactivity, -p.throughput))
