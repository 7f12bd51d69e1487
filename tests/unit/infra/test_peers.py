"""Peers are asked the same, measured the same, and none of them outlives its time."""

from __future__ import annotations

import ast
import io
import json
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console

from tests.unit.actors.exchange.helpers import wait_for
from tests.unit.infra.scripts import INFRA, importable, module

FOLDER = INFRA / "bench" / "peers"


@pytest.fixture(scope="module", autouse=True)
def on_the_path() -> Iterator[None]:
    with importable(FOLDER):
        yield


def test_the_measuring_side_needs_the_standard_library_alone() -> None:
    tree = ast.parse((FOLDER / "measure.py").read_text("utf-8"))
    roots = {
        (node.module if isinstance(node, ast.ImportFrom) else node.names[0].name).split(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
    }
    assert roots <= sys.stdlib_module_names


def test_decode_counts_what_comes_after_the_first_token() -> None:
    answer = module("measure").Answer()
    answer.add(1.0, [5])
    answer.add(1.5, [])
    answer.add(2.0, [6, 7, 8])
    answer.add(3.0, [9])
    assert answer.ids == [5, 6, 7, 8, 9]
    assert answer.first_s == 1.0
    assert answer.decode == (4, 2.0)


def test_every_prompt_is_measured_alone_and_then_all_together_after_a_warm_up() -> None:
    measure = module("measure")
    asked: list[tuple[int, int]] = []

    class Engine:
        together = True

        def run(self, prompts: list[list[int]], max_tokens: int) -> list[object]:
            asked.append((len(prompts), max_tokens))
            answers = []
            for _ in prompts:
                answer = measure.Answer()
                for step in range(max_tokens):
                    answer.add(1.0 + step, [step])
                answers.append(answer)
            return answers

    work = measure.Work(
        model="",
        gguf="",
        eos_ids=(0,),
        max_tokens=5,
        max_model_len=64,
        threads=1,
        prompts=((1, 2), (3, 4)),
        long_prompts={4: ((1, 1, 1, 1), (2, 2, 2, 2))},
    )
    figures = measure.measure(Engine(), work)
    assert asked == [(1, 16), (2, 8), (1, 2), (1, 5), (1, 5), (2, 5), (1, 2), (1, 2)]
    assert figures["decode_tokens_per_s"] == 1.0
    assert figures["first_token_s"] == {"4": 1.0}
    assert figures["together_tokens_per_s"] > 0
    Engine.together = False
    assert measure.measure(Engine(), work)["together_tokens_per_s"] is None


def test_long_prompts_have_their_length_and_no_common_beginning() -> None:
    prompts = [list(range(100)), list(range(100, 130))]
    made = module("work").long_prompts(prompts, 64)
    assert [len(prompt) for prompt in made] == [64] * 3
    assert len({prompt[0] for prompt in made}) == 3


def record(peer: str, variant: str, number: int, decode: float, first: float) -> dict[str, object]:
    return {
        "peer": peer,
        "variant": variant,
        "round": number,
        "versions": {},
        "decode_tokens_per_s": decode,
        "together_tokens_per_s": None,
        "first_token_s": {"1024": first, "4096": first},
        "answers": [[1, 2], [3, int(decode)]],
    }


def test_ratios_are_to_our_standard_decode_of_the_same_round(tmp_path: Path) -> None:
    results = module("results")
    for number, (ours, theirs) in enumerate([(10.0, 20.0), (40.0, 40.0), (10.0, 30.0)]):
        for made in (
            record("pilotfish", "plain", number, ours, 2.0),
            record("vllm", "ngram", number, theirs, 1.0),
        ):
            name = f"{made['peer']}.round{number}.json"
            (tmp_path / name).write_text(json.dumps(made))
    rows = results.summary(results.read(tmp_path))
    assert rows["vllm ngram"]["decode"] == {"median": 30.0, "low": 20.0, "high": 40.0, "ratio": 2.0}
    assert rows["vllm ngram"]["ttft_1024"]["ratio"] == 2.0  # half the seconds, twice as good
    assert rows["vllm ngram"]["together"]["median"] is None
    assert rows["vllm ngram"]["same_text"] == "1/2"
    assert rows["pilotfish"]["decode"]["ratio"] == 1.0
    console = Console(width=140, record=True, file=io.StringIO())
    results.show(results.read(tmp_path), ["llama-cpp: no compiler"], console)
    assert "NOT MEASURED llama-cpp: no compiler" in console.export_text()


def test_a_runner_that_is_not_done_in_time_is_ended_with_its_children(tmp_path: Path) -> None:
    processes = module("processes")
    script = (
        "import subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        f"open({str(tmp_path / 'pid')!r}, 'w').write(str(child.pid))\n"
        "time.sleep(600)\n"
    )
    reason = processes.run([sys.executable, "-c", script], {}, tmp_path / "log", 3.0)
    assert reason is not None
    assert "not done after 3 s" in reason
    wait_for(lambda: not alive(int((tmp_path / "pid").read_text())))  # the kernel takes a moment


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("pass", None),
        ("raise SystemExit(3)", "exit code 3"),
        (f"import os; os.kill(os.getpid(), {int(signal.SIGILL)})", "ended by SIGILL"),
    ],
)
def test_how_a_runner_ended_is_said(script: str, words: str | None, tmp_path: Path) -> None:
    reason = module("processes").run([sys.executable, "-c", script], {}, tmp_path / "log", 60.0)
    assert reason is None if words is None else words in (reason or "")


def alive(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat[stat.rindex(")") + 2] != "Z"


def test_the_prompts_are_the_first_two_of_each_kind_and_a_missing_kind_is_named(
    tmp_path: Path,
) -> None:
    prompts = module("prompts")
    from cluster.bench.errors import DatasetError

    path = tmp_path / "question.jsonl"
    lines = [
        json.dumps({"question_id": f"{kind}{i}", "category": kind, "turns": [f"{kind} {i}"]})
        for i in range(3)
        for kind in (*prompts.KINDS, "roleplay")
    ]
    path.write_text("\n".join(lines) + "\n")
    chosen = prompts.pick(path)
    assert [p.id for p in chosen[:3]] == ["summarization0", "summarization1", "rag0"]
    assert len(chosen) == 12
    path.write_text(lines[0] + "\n")
    with pytest.raises(DatasetError, match="1 prompts of summarization"):
        prompts.pick(path)
