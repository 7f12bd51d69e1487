"""Our cells show Prometheus what prometheus_client's own metrics show it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from cluster.gateway.cells import MOST_SERIES, OTHER, Cells

BOUNDS = (0.001, 0.1, 1.0, 20.0)
LABELS = {"model_name": 'a"b\\c', "engine": "0"}


def theirs(values: list[float], reasons: list[str]) -> bytes:
    registry = CollectorRegistry()
    names = list(LABELS)
    count = Counter("x:count", "Counted.", names, registry=registry).labels(**LABELS)
    gauge = Gauge("x:level", "Now.", names, registry=registry).labels(**LABELS)
    family = Counter("x:family", "By reason.", [*names, "reason"], registry=registry)
    histogram = Histogram("x:spread", "Spread.", names, registry=registry, buckets=BOUNDS)
    children = {r: family.labels(**LABELS, reason=r) for r in ("a", "b")}
    spread = histogram.labels(**LABELS)
    table = Counter("x:table", "By two.", [*names, "a", "b"], registry=registry)
    levels = Gauge("x:levels", "Now, by one.", [*names, "a"], registry=registry)
    for value in values:
        count.inc(value)
        gauge.inc()
        spread.observe(value)
        spread.observe(value)
    gauge.dec()
    for reason in reasons:
        children[reason].inc()
        table.labels(**LABELS, a=reason, b='"').inc(2)
        levels.labels(**LABELS, a=reason).set(3)
    return generate_latest(registry)


def ours(values: list[float], reasons: list[str]) -> bytes:
    registry, cells = CollectorRegistry(), Cells(LABELS)
    count = cells.count("x:count", "Counted.")
    gauge = cells.level("x:level", "Now.")
    family = cells.family("x:family", "By reason.", "reason", ("a", "b"))
    spread = cells.spread("x:spread", "Spread.", BOUNDS)
    table = cells.table("x:table", "By two.", ("a", "b"))
    levels = cells.table("x:levels", "Now, by one.", ("a",), gauge=True)
    registry.register(cells)
    for value in values:
        count.inc(value)
        gauge.inc()
        spread.observe(value, 2)
    gauge.dec()
    for reason in reasons:
        family[reason].inc()
        table.at(reason, '"').inc(2)
        levels.at(reason).value = 3.0
    return generate_latest(registry)


def lines(text: bytes) -> set[str]:
    """When a series was created is all that ours leave out."""
    return {line for line in text.decode().splitlines() if "_created" not in line}


@given(
    # Multiples of 1/8, whose sums are exact in any order, and the bounds themselves.
    st.lists(st.integers(0, 400).map(lambda n: n / 8) | st.just(1.0) | st.just(20.0), max_size=20),
    st.lists(st.sampled_from(["a", "b"]), max_size=5),
)
def test_the_text_is_the_librarys(values: list[float], reasons: list[str]) -> None:
    assert lines(ours(values, reasons)) == lines(theirs(values, reasons))


def test_labels_that_nobody_bounded_become_one_series_beyond_so_many() -> None:
    """R10."""
    table = Cells(LABELS).table("x:table", "By client.", ("a", "b"))
    for i in range(MOST_SERIES + 10):
        table.at(f"a{i}", "b").inc()
    assert len(table.cells()) == MOST_SERIES + 1
    assert table.at(OTHER, OTHER).value == 10
    assert table.at("a0", "b").value == 1
