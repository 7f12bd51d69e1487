"""The record, the page and the pictures say the same, and a baseline is told apart from a run."""

from __future__ import annotations

import asyncio
import io
import json
import re
import signal
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from matplotlib.figure import Figure
from rich.console import Console

from cluster.bench import plots, record, table
from cluster.bench.account import account
from cluster.bench.baseline import choose, compare
from cluster.bench.errors import BenchError
from cluster.bench.machine import Machine, this_machine, versions
from cluster.bench.page import page
from cluster.bench.pareto import front, points
from cluster.bench.record import Record, Workload, read, write
from cluster.bench.servers import Server
from cluster.bench.stop import Stop
from cluster.serving_wait import Interrupted
from cluster.sighting import Sighting
from tests.unit.cluster.bench.fakes import REMOTE, STANDARD, make_attempt, make_sample

HERE = Machine("CPU <9>", 2, 24, (), "Linux")


def make_record(**changes: object) -> Record:
    """Three runs of two legs; the remote one is twice as fast."""
    spent = Sighting((1,), (2,), 1, received=9, steps=4, busy_s=0.4, forward_s=0.3, wait_s=0.02)
    attempts = []
    for run in range(3):
        plain = make_sample([(1.0 + i, 1, 0) for i in range(5)], category="math")
        fast = make_sample([(1.0, 1, 0), (2.0, 2, 1), (3.0, 2, 1)], category="math")
        attempts.append(make_attempt(STANDARD, [plain, plain], run=run))
        attempts.append(
            make_attempt(
                REMOTE, [fast, fast], run=run, after=spent, positions={0: (4, 3), 1: (2, 1)}
            )
        )
    servers = {
        leg: Server(leg.server, (leg,), "", None, 1, keeps=False) for leg in (STANDARD, REMOTE)
    }
    figures, refused = account(attempts, servers)
    made = Record(
        date="2026-11-29T12:00:00+00:00",
        command="pilotfish bench --legs 'suffix:4'",
        machine=HERE,
        versions={"torch": "2.13.0"},
        model={"id": "m", "dtype": "float32", "max_model_len": 64},
        workload=Workload("d.jsonl", "abc", 6, 1, 2, 3, 5, False, 2, 0),
        busy=(0.1, 1.9),
        figures=figures,
        refused=refused,
        front=tuple(front(points(figures, 0.0))),
    )
    return replace(made, **changes)


def shown(print_to: Any) -> str:
    console = Console(width=160, record=True, file=io.StringIO())
    print_to(console)
    return console.export_text()


def test_a_record_that_is_read_again_is_the_one_that_was_written(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    write(make_record(), path)
    assert [p.name for p in tmp_path.iterdir()] == ["report.json"]
    baseline = read(path)
    assert baseline.machine == HERE
    assert [f["leg"] for f in baseline.figures] == ["standard", REMOTE.name]
    document = json.loads(path.read_text())
    assert document["figures"][1]["ratio_decode"] == {
        "value": 2.0,
        "low": 2.0,
        "high": 2.0,
        "pairs": 6,
    }


@pytest.mark.parametrize(
    "text", ["{", "[]", "{}", '{"format": 99}', '{"format": 1, "machine": {}}']
)
def test_a_file_that_is_no_record_is_refused_by_name(tmp_path: Path, text: str) -> None:
    path = tmp_path / "other.json"
    path.write_text(text)
    with pytest.raises(BenchError, match=r"^--baseline: .*other\.json"):
        read(path)
    with pytest.raises(BenchError, match="cannot read"):
        read(tmp_path / "missing.json")


def test_the_tables_and_the_page_tell_the_same_figures() -> None:
    made = make_record()
    text = shown(lambda console: table.show(made, console))
    html = page(made, plots.draw(made))
    for figure in (
        "2.00 [2.00, 2.00]",
        "suffix:4@remote",
        "0.75",
        "75.00",
        "load average 0.1 to 1.9",
    ):
        assert figure in text
        assert figure in html
    assert "1 lines of the file repeat another prompt" in text
    assert "CPU &lt;9&gt;" in html


def test_a_narrow_terminal_cuts_no_figure_off() -> None:
    console = Console(width=40, record=True, file=io.StringIO())
    table.show(make_record(), console)
    assert console.width == 40
    text = console.export_text()
    assert "…" not in text
    assert "2.00 [2.00, 2.00]" in text


def test_a_refused_leg_and_repeats_are_said_aloud() -> None:
    made = make_record()
    refused = record.Refused(REMOTE.name, 0.0, "1 client", 1, "the drafter was lost")
    known = replace(made.figures[1], replayed_runs=2, replayed_acceptance_length=4.5)
    made = replace(made, refused=(refused,), figures=(made.figures[0], known))
    lines = list(table.notes(made))
    assert "REFUSED suffix:4@remote at T = 0, 1 client, run 2: the drafter was lost" in lines
    assert any(line.startswith("REPEATED") and "4.50" in line for line in lines)
    assert page(made, {}).count("<p class=refused>") == 2


def test_the_page_needs_no_other_file_and_no_network() -> None:
    pictures = plots.draw(make_record())
    html = page(make_record(), pictures)
    assert list(pictures) == [
        "pareto",
        "ratios",
        "inter_token_latency",
        "acceptance_by_position",
        "acceptance_by_category",
        "time_split",
    ]
    assert all(png.startswith(b"\x89PNG") for png in pictures.values())
    assert html.count("data:image/png;base64,") == len(pictures)
    assert not re.findall(r'(?:src|href)="(?!data:)', html)
    assert "<script" not in html
    assert "content=\"default-src 'none'; style-src 'unsafe-inline'; img-src data:\"" in html
    for word in ("AL", "TTFT", "ITL", "TPOT", "same"):
        assert f"<dt>{word}</dt>" in html


def test_loads_are_told_apart_in_every_picture_of_acceptance() -> None:
    (_, one) = make_record().figures
    figures = [one, replace(one, load="4 clients"), replace(one, load="12 clients")]
    bars, lines = Figure(), Figure()
    plots._categories(bars, figures, {one.leg: "#0072B2"})
    plots._positions(lines, figures, {one.leg: "#0072B2"})
    assert len({bar.patches[0].get_hatch() for bar in bars.axes[0].containers}) == 3
    assert len({line.get_marker() for line in lines.axes[0].lines}) == 3


def test_a_rate_of_few_tokens_looks_like_one() -> None:
    (_, one) = make_record().figures
    few, many = (
        replace(p, drafted=count) for p, count in zip(one.positions, (3, 300), strict=True)
    )
    picture = Figure()
    plots._positions(picture, [replace(one, positions=(few, many))], {one.leg: "#0072B2"})
    line, hollow = picture.axes[0].lines
    assert list(line.get_xdata()) == [1, 2]
    assert (list(hollow.get_xdata()), hollow.get_markerfacecolor()) == ([1], "white")


def test_a_record_of_refusals_alone_has_nothing_to_draw() -> None:
    empty = make_record(figures=(), front=())
    assert plots.draw(empty) == {}
    assert "Rates" in shown(lambda console: table.show(empty, console))


# -------------------------------------------------------------------------------- baselines


def test_the_newest_baseline_of_a_like_machine_is_chosen(tmp_path: Path) -> None:
    other = replace(HERE, cores=64)
    for name, date, machine in (
        ("a", "2026-01-01", HERE),
        ("b", "2026-02-01", HERE),
        ("c", "2026-03-01", other),
    ):
        write(make_record(date=date, machine=machine), tmp_path / f"{name}.json")
    for path, machine, name in (
        (tmp_path, HERE, "b.json"),
        (tmp_path, replace(HERE, cpu="new"), "c.json"),
        (tmp_path / "a.json", HERE, "a.json"),
    ):
        chosen = choose(path, machine)
        assert chosen is not None
        assert chosen.path.name == name
    empty = tmp_path / "empty"
    empty.mkdir()
    assert choose(empty, HERE) is None


def test_another_machines_baseline_is_said_to_be_one(tmp_path: Path) -> None:
    path = tmp_path / "then.json"
    write(make_record(machine=replace(HERE, cpu="Other CPU")), path)
    found = compare(make_record(), read(path))
    assert any("another machine's baseline (Other CPU" in caveat for caveat in found.caveats)
    assert "only ratios compare" in shown(lambda console: table.show_comparison(found, console))


def test_a_like_baseline_is_compared_figure_by_figure_without_a_caveat(tmp_path: Path) -> None:
    path = tmp_path / "then.json"
    write(make_record(), path)
    now = make_record()
    now = replace(now, figures=tuple(replace(f, decode_rate=1.5) for f in now.figures))
    found = compare(now, read(path))
    assert found.caveats == ()
    assert [d.decode_rate for d in found.differences] == [(1.5, 1.0), (1.5, 2.0)]
    assert "1.50 (-25.0%)" in shown(lambda console: table.show_comparison(found, console))


def test_a_busy_machine_is_a_caveat_on_either_side(tmp_path: Path) -> None:
    path = tmp_path / "then.json"
    write(make_record(busy=(7.5, 9.0)), path)
    assert compare(make_record(), read(path)).caveats == (
        "the baseline began on a busy machine (load average 7.5)",
    )
    write(make_record(), path)
    assert compare(make_record(busy=(3.0, 0.0)), read(path)).caveats == (
        "this run began on a busy machine (load average 3.0)",
    )


def test_other_prompts_models_and_versions_are_caveats(tmp_path: Path) -> None:
    path = tmp_path / "then.json"
    write(make_record(), path)
    now = make_record()
    now = replace(
        now,
        workload=replace(now.workload, digest="other"),
        model={**now.model, "dtype": "bfloat16"},
        versions={"torch": "3"},
        figures=(),
    )
    text = " | ".join(compare(now, read(path)).caveats)
    for words in ("another workload (digest", "another model", "torch 2.13.0 became 3", "no leg"):
        assert words in text


def test_this_machine_is_like_itself_and_its_packages_are_named() -> None:
    here = this_machine()
    assert here.like(here)
    assert not here.like(replace(here, cores=here.cores + 1))
    assert here.cpu
    assert versions()["torch"] != "not installed"


# -------------------------------------------------------------------------------- stopping


def test_a_stop_cancels_what_runs_and_lets_it_end_first() -> None:
    stop, ended = Stop(), []

    async def work() -> None:
        stop.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(True)

    with pytest.raises(Interrupted):
        stop.run(work())
    assert ended == [True]


def test_a_stop_before_the_start_lets_nothing_begin() -> None:
    stop = Stop()
    stop.set()

    async def work() -> None:
        raise AssertionError("it began")

    with pytest.raises(Interrupted):
        stop.run(work())


def test_the_first_signal_is_an_event_and_the_second_is_deadly() -> None:
    before = {n: signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)}
    stop = Stop()
    try:
        stop.install()
        signal.raise_signal(signal.SIGTERM)
        assert stop.event.is_set()
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def test_missing_matplotlib_is_said_before_a_long_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plots, "find_spec", lambda name: None)
    with pytest.raises(BenchError, match=r"pilotfish\[bench\]"):
        plots.require()
    monkeypatch.setattr(plots, "find_spec", lambda name: SimpleNamespace())
    plots.require()
