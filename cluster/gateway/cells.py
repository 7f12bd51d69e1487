"""Counters, gauges and histograms of one event loop: plain numbers, read when Prometheus asks.

prometheus_client's own take a lock and a chain of calls for each increment, and a round of a
speculating request makes thirty. Names, types and text format stay its business: this is one of
its collectors.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import cast

from prometheus_client import utils
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector
from typing_extensions import override

OTHER = "other"
"""The label value of what is in no closed set."""
MOST_SERIES = 4096
"""Of one table."""
_go = cast("Callable[[float], str]", utils.floatToGoString)  # which has no annotations


class Count:
    """A number that only grows; a gauge's may shrink."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0.0

    def inc(self, amount: float = 1.0) -> None:
        self.value += amount


class Level(Count):
    __slots__ = ()

    def dec(self) -> None:
        self.value -= 1.0


class Table:
    """A number for each combination of label values that has been seen. Callers take the values
    from closed sets; where one does not, what comes after `most` combinations is one number, so
    that no label can fill the memory or Prometheus."""

    def __init__(self, labels: Sequence[str], most: int) -> None:
        self.labels = tuple(labels)
        self._most = most
        self._cells: dict[tuple[str, ...], Level] = {}

    def at(self, *values: str) -> Level:
        cell = self._cells.get(values)
        if cell is None:
            if len(self._cells) >= self._most:
                values = (OTHER,) * len(self.labels)
            cell = self._cells.setdefault(values, Level())
        return cell

    def cells(self) -> list[tuple[tuple[str, ...], Level]]:
        """What there is now, with its label values."""
        return list(self._cells.items())


class Spread:
    """A histogram. bounds: ascending upper bounds, each inclusive."""

    __slots__ = ("_bounds", "_counts", "_sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = tuple(bounds)
        self._counts = [0] * (len(self._bounds) + 1)
        self._sum = 0.0

    def observe(self, value: float, times: int = 1) -> None:
        """`times` observations of the same value."""
        self._counts[bisect_left(self._bounds, value)] += times
        self._sum += value * times

    def shown(self) -> tuple[list[tuple[str, float]], float]:
        """(upper bound, observations up to it) of each bucket, and the sum of all."""
        total, buckets = 0, []
        for bound, count in zip((*self._bounds, float("inf")), self._counts, strict=True):
            total += count
            buckets.append((_go(bound), float(total)))
        return buckets, self._sum


class Cells(Collector):
    """Every cell of one gateway, under labels that all of them share."""

    def __init__(self, labels: Mapping[str, str]) -> None:
        self._names = list(labels)
        self._values = list(labels.values())
        self._counts: list[tuple[str, str, Count]] = []
        self._levels: list[tuple[str, str, Level]] = []
        self._spreads: list[tuple[str, str, Spread]] = []
        self._families: list[tuple[str, str, str, dict[str, Count]]] = []
        self._tables: list[tuple[str, str, Table, bool]] = []

    def count(self, name: str, text: str) -> Count:
        cell = Count()
        self._counts.append((name, text, cell))
        return cell

    def level(self, name: str, text: str) -> Level:
        cell = Level()
        self._levels.append((name, text, cell))
        return cell

    def spread(self, name: str, text: str, bounds: Sequence[float]) -> Spread:
        cell = Spread(bounds)
        self._spreads.append((name, text, cell))
        return cell

    def family(self, name: str, text: str, label: str, values: Iterable[str]) -> dict[str, Count]:
        """A counter for each value of one more label, a closed set."""
        cells = {value: Count() for value in values}
        self._families.append((name, text, label, cells))
        return cells

    def table(self, name: str, text: str, labels: Sequence[str], *, gauge: bool = False) -> Table:
        """Counters, or gauges, under more labels, whose values are not known before."""
        table = Table(labels, MOST_SERIES)
        self._tables.append((name, text, table, gauge))
        return table

    @override
    def collect(self) -> Iterator[Metric]:
        for name, text, count in self._counts:
            counter = CounterMetricFamily(name, text, labels=self._names)
            counter.add_metric(self._values, count.value)
            yield counter
        for name, text, level in self._levels:
            gauge = GaugeMetricFamily(name, text, labels=self._names)
            gauge.add_metric(self._values, level.value)
            yield gauge
        for name, text, label, cells in self._families:
            counter = CounterMetricFamily(name, text, labels=[*self._names, label])
            for value, count in cells.items():
                counter.add_metric([*self._values, value], count.value)
            yield counter
        for name, text, table, is_gauge in self._tables:
            kind = GaugeMetricFamily if is_gauge else CounterMetricFamily
            family = kind(name, text, labels=[*self._names, *table.labels])
            for values, cell in table.cells():
                family.add_metric([*self._values, *values], cell.value)
            yield family
        for name, text, spread in self._spreads:
            histogram = HistogramMetricFamily(name, text, labels=self._names)
            buckets, total = spread.shown()
            histogram.add_metric(self._values, buckets, total)
            yield histogram
