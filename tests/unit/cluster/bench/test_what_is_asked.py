"""Legs, loads and prompts are what the user wrote, or a line that names the flag."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from cluster.bench.dataset import load
from cluster.bench.errors import BenchError, DatasetError
from cluster.bench.legs import STANDARD, parse_legs, servers_of, speculative_config
from cluster.bench.loads import Load, arrivals, offer, parse_loads
from cluster.bench.options import dtype_of, legs_of, loads_of, temperatures_of
from cluster.bench.schedule import Setting, schedule
from cluster.bench.workload import Ledger, deal, spread
from tests.unit.cluster.bench.fakes import COLOCATED, REMOTE, make_prompt

# -------------------------------------------------------------------------------- legs


def test_standard_decode_is_always_there_and_first() -> None:
    assert parse_legs("suffix:4@remote,standard,suffix:4@colocated") == (
        STANDARD,
        REMOTE,
        COLOCATED,
    )
    assert parse_legs("suffix:4")[0] == STANDARD


def test_a_model_may_hold_colons_and_names_its_server() -> None:
    leg = parse_legs("custom_class=a.b:C:3@colocated")[1]
    assert (leg.mechanism, leg.model, leg.depth) == ("custom_class", "a.b:C", 3)
    assert leg.server == "custom_class=a.b:C@colocated"


def test_a_leg_may_have_suffix_decoding_beside_a_drafter_that_computes() -> None:
    both, alone = parse_legs("dspark+suffix=folder:4,dspark=folder:4")[1:]
    assert (both.mechanism, both.model, both.suffix) == ("dspark", "folder", True)
    assert both.server != alone.server
    config = speculative_config([both])
    assert config is not None
    assert config.enable_suffix_decoding
    with pytest.raises(BenchError, match="for drafters that compute"):
        parse_legs("ngram+suffix:4")


def test_legs_that_differ_in_depth_alone_share_a_server_that_keeps_nothing() -> None:
    groups = servers_of(parse_legs("suffix:2,suffix:6,suffix:4@colocated"))
    assert [len(legs) for legs in groups.values()] == [1, 2, 1]
    config = speculative_config(groups["suffix@remote"])
    assert config is not None
    assert config.num_speculative_tokens == 6
    assert config.suffix_decoding_max_cached_requests == 0
    assert speculative_config(groups["standard"]) is None


def test_always_is_a_server_of_its_own_that_asks_no_policy() -> None:
    groups = servers_of(parse_legs("suffix:2,suffix:2!,suffix:4!,suffix:4!@colocated"))
    assert [[leg.name for leg in legs] for legs in groups.values()] == [
        ["standard"],
        ["suffix:2@remote"],
        ["suffix:2!@remote", "suffix:4!@remote"],
        ["suffix:4!@colocated"],
    ]
    made = [speculative_config(legs) for legs in groups.values()]
    assert [(c.adaptive, c.num_speculative_tokens) for c in made if c] == [
        (True, 2),
        (False, 4),
        (False, 4),
    ]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "nothing to compare"),
        ("standard", "nothing to compare"),
        ("sufix:4", "did you mean 'suffix'"),
        ("suffix", "no draft length"),
        ("suffix:0", "D = 0 is the leg standard"),
        ("suffix:33", "1 to 32"),
        ("suffix:four", "not 'four'"),
        ("suffix:4@remot", "did you mean 'remote'"),
        ("custom_class:4", "needs 'model'"),
        (":4", "no draft length"),
    ],
)
def test_a_leg_that_is_none_is_refused_with_what_was_meant(text: str, words: str) -> None:
    with pytest.raises(BenchError, match=r"^--legs: ") as refused:
        parse_legs(text)
    assert words in str(refused.value)


def test_an_attached_server_is_asked_for_depths_alone() -> None:
    assert [leg.depth for leg in legs_of("served:2,served:4", "127.0.0.1:1")] == [0, 2, 4]
    assert legs_of(None, "127.0.0.1:1")[1].name == "served:4"
    with pytest.raises(BenchError, match="with --attach"):
        legs_of("suffix:4", "127.0.0.1:1")


# -------------------------------------------------------------------------------- loads


def test_closed_and_open_loads_stand_beside_each_other() -> None:
    assert parse_loads("1,16,1", "0.5") == (Load(clients=1), Load(clients=16), Load(rate=0.5))
    assert [load.name for load in parse_loads("1,2", "3")] == ["1 client", "2 clients", "3/s"]
    assert loads_of(None, None) == (Load(clients=1), Load(clients=4))
    assert loads_of(None, "2") == (Load(rate=2.0),)


@pytest.mark.parametrize(
    ("clients", "rate", "flag"),
    [
        ("0", "", "--max-concurrency"),
        ("x", "", "--max-concurrency"),
        ("9999", "", "--max-concurrency"),
        ("", "inf", "--request-rate"),
        ("", "0", "--request-rate"),
        ("", "nan", "--request-rate"),
        ("", "", "--max-concurrency"),
    ],
)
def test_a_load_that_is_none_is_refused_by_its_flag(clients: str, rate: str, flag: str) -> None:
    with pytest.raises(BenchError, match=flag):
        parse_loads(clients, rate)


def test_arrivals_are_a_seeded_poisson_process() -> None:
    times = arrivals(4.0, 4000, seed=7)
    assert times == arrivals(4.0, 4000, seed=7)
    assert times != arrivals(4.0, 4000, seed=8)
    gaps = [b - a for a, b in zip([0.0, *times], times, strict=False)]
    mean = sum(gaps) / len(gaps)
    variance = sum((gap - mean) ** 2 for gap in gaps) / len(gaps)
    assert mean == pytest.approx(0.25, rel=0.05)
    assert variance == pytest.approx(0.25**2, rel=0.15)  # exponential: as wide as it is long


async def test_a_closed_loop_keeps_its_clients_busy_and_never_more() -> None:
    running, most, done = 0, 0, []

    def job(number: int):
        async def work(due_s: float) -> int:
            nonlocal running, most
            running += 1
            most = max(most, running)
            await asyncio.sleep(0)
            running -= 1
            done.append(number)
            return number

        return work

    results = await offer(Load(clients=3), [job(i) for i in range(10)], 0, lambda: 0.0)
    assert results == list(range(10))
    assert sorted(done) == results
    assert most == 3


async def test_an_open_loop_tells_each_request_when_it_was_due_however_late_it_starts() -> None:
    async def job(due_s: float) -> float:
        return due_s

    late = iter([0.0, *([1e9] * 20)])  # the clock jumps: every request starts late
    due = await offer(Load(rate=5.0), [job] * 4, 3, lambda: next(late))
    assert due == arrivals(5.0, 4, 3)


async def test_one_failure_ends_the_other_requests_before_it_is_raised() -> None:
    ended = []

    async def waits(due_s: float) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(due_s)

    async def fails(due_s: float) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await offer(Load(clients=2), [waits, fails], 0, lambda: 0.0)
    assert ended == [0.0]


@pytest.mark.parametrize("text", ["", "x", "-1", "3", "nan", "0;1"])
def test_a_temperature_out_of_bounds_is_refused(text: str) -> None:
    with pytest.raises(BenchError, match="--temperature"):
        temperatures_of(text)
    assert temperatures_of("0, 1,0") == (0.0, 1.0)


def test_an_unknown_dtype_is_refused_with_a_near_one() -> None:
    assert dtype_of("bfloat16") == "bfloat16"
    with pytest.raises(BenchError, match="did you mean 'bfloat16'"):
        dtype_of("bfloat")


# -------------------------------------------------------------------------------- prompts


def write(path: Path, *records: object) -> Path:
    path.write_text("\n".join(json.dumps(record) for record in records) + "\n", "utf-8")
    return path


def test_three_formats_are_told_apart_by_what_they_hold(tmp_path: Path) -> None:
    chat = [{"role": "system", "content": "Short."}, {"role": "user", "content": "Hi"}]
    file = write(
        tmp_path / "mixed.jsonl",
        {"question_id": 81, "category": "writing", "turns": ["Write.", "Again."]},
        {"question_id": "ab", "category": "coding", "messages": [*chat, *chat]},
        {"prompt": "Mine"},
    )
    prompts = load(file).prompts
    assert [p.messages for p in prompts] == [
        (("user", "Write."),),
        (("system", "Short."), ("user", "Hi")),
        (("user", "Mine"),),
    ]
    assert [(p.id, p.category) for p in prompts][:2] == [("81", "writing"), ("ab", "coding")]


def test_a_prompt_that_stands_twice_in_a_file_is_asked_once_and_counted(tmp_path: Path) -> None:
    file = write(tmp_path / "d.jsonl", {"prompt": "a", "id": 1}, {"prompt": "b"}, {"prompt": "a"})
    dataset = load(file)
    assert ([p.id for p in dataset.prompts], dataset.duplicates) == (["1", "2"], 1)


def test_the_built_in_prompts_need_no_file() -> None:
    dataset = load(None)
    assert len(dataset.prompts) >= 12
    assert dataset.digest == load(None).digest


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("{", "not JSON"),
        ("[1]", "an object is wanted"),
        ('{"text": "a"}', "neither prompt, turns nor messages"),
        ('{"prompt": "  "}', "empty"),
        ('{"turns": [1]}', "neither prompt"),
        ('{"messages": [{"role": "tool", "content": "a"}]}', "a message has a role"),
        ('{"messages": [{"role": "system", "content": "a"}]}', "no message of the user"),
        (
            '{"turns": ["FULL BENCHMARK DATA SHOULD BE FETCHED FROM THE SOURCE USING X"]}',
            "withheld",
        ),
        ("", "no prompts"),
    ],
)
def test_a_file_that_is_no_dataset_is_refused_by_its_line(
    tmp_path: Path, line: str, words: str
) -> None:
    file = tmp_path / "bad.jsonl"
    file.write_text(line + "\n", "utf-8")
    with pytest.raises(DatasetError, match=r"^--dataset-path: ") as refused:
        load(file)
    assert words in str(refused.value)
    with pytest.raises(DatasetError, match="cannot read"):
        load(tmp_path / "missing.jsonl")


# -------------------------------------------------------------------------------- schedule


def test_categories_take_turns() -> None:
    prompts = [make_prompt(f"{c}{i}", c) for c in "ab" for i in range(3)]
    assert [p.id for p in spread(prompts)] == ["a0", "b0", "a1", "b1", "a2", "b2"]


def test_hands_are_disjoint_while_the_file_has_fresh_prompts() -> None:
    prompts = [make_prompt(str(i)) for i in range(5)]
    first, second, third = deal(prompts, [2, 2, 2])
    assert not {*first} & {*second}
    assert [p.id for p in third] == ["4", "0"]


def test_the_ledger_knows_what_each_server_was_asked() -> None:
    ledger, a, b = Ledger(), make_prompt("a"), make_prompt("b")
    assert ledger.note("one", [a, b]) == 0
    assert ledger.note("two", [a, a]) == 1
    assert ledger.note("one", [b, make_prompt("c")]) == 1


def test_legs_of_a_run_have_the_same_prompts_seeds_and_arrivals_and_take_turns_at_going_first() -> (
    None
):
    legs = (STANDARD, COLOCATED, REMOTE)
    settings = [Setting(t, load) for t in (0.0, 1.0) for load in parse_loads("1", "2")]
    prompts = [make_prompt(str(i)) for i in range(100)]
    cells = schedule(legs, settings, dataset=prompts, prompts=2, runs=3, seed=5)
    assert len(cells) == 3 * 4 * 3
    firsts = []
    for start in range(0, len(cells), 3):
        turn = cells[start : start + 3]
        assert {cell.leg for cell in turn} == set(legs)
        assert len({(cell.setting, cell.run, cell.prompts, cell.seed) for cell in turn}) == 1
        firsts.append(turn[0].leg)
    assert all(firsts.count(leg) == 4 for leg in legs)
    drafting = [cell.leg for cell in cells if not cell.leg.standard][::2]
    assert drafting == [COLOCATED, REMOTE] * 6  # of those that draft, either one first
    hands = [cell.prompts for cell in cells[::3]]
    assert len({p for hand in hands for p in hand}) == 2 * len(hands)


def test_every_client_of_a_closed_loop_has_something_to_ask() -> None:
    assert Load(clients=64).requests(12) == 64
    assert Load(clients=1).requests(12) == 12
    assert Load(rate=1.0).requests(12) == 12
