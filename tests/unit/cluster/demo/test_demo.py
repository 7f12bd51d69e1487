"""The account is right, colours alter no text, and a dead drafter is never overlooked."""

from __future__ import annotations

import io
import json
import os
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from cluster.demo.dataset import DatasetError, load
from cluster.demo.legs import REMOTE, STANDARD, LegResult, run_leg
from cluster.demo.report import Pair, rows_of, table_of
from cluster.demo.view import ACCEPTED, coloured
from cluster.demo.watch import DrafterLost, require_alive
from cluster.serving_wait import until_settled
from cluster.sighting import Sighting
from pilotfish import Delta, TokenScore


def make_leg(ids: tuple[int, ...] = (1, 2, 3, 4, 5), **keywords: object) -> LegResult:
    leg = LegResult(
        text="",
        token_ids=ids,
        first_s=0.1,
        decode_s=1.0,
        decode_tokens=len(ids) - 1,
        rounds=0,
        drafted=0,
        accepted=0,
        remote_accepted=0,
        gaps=(1.0,) * len(ids),
        reasons=(),
    )
    return replace(leg, **keywords)


def make_sighting(**keywords: object) -> Sighting:
    sighting = Sighting((1,), (os.getpid(),), links_up=1, sent=10, received=10, used=5)
    return replace(sighting, **keywords)


# -------------------------------------------------------------------------------- account


def test_no_leg_finds_a_prompt_that_the_other_has_computed() -> None:
    asked: list[dict[str, object]] = []

    class FakeClient:
        def stream(self, **options: object) -> object:
            asked.append(options)
            return nullcontext([Delta("x", (1,), finish_reason="stop")])

    for leg in (STANDARD, REMOTE, STANDARD):
        run_leg(FakeClient(), leg, "prompt", 4)  # type: ignore[arg-type]
    salts = [options["cache_salt"] for options in asked]
    assert salts[0] == salts[2] != salts[1]
    assert all(salts)


def test_rates_are_tokens_over_seconds_and_never_means_of_rates() -> None:
    pairs = [
        Pair("a", make_leg(decode_s=1.0), make_leg(decode_s=0.5, accepted=2, remote_accepted=2)),
        Pair("b", make_leg(decode_s=3.0), make_leg(decode_s=3.0)),
    ]
    a, b, total = rows_of(pairs)
    assert (a.standard_rate, a.remote_rate, a.ratio) == (4.0, 8.0, 2.0)
    assert (a.acceptance_length, b.acceptance_length) == (2.0, 1.0)
    assert (total.standard_rate, total.remote_rate) == (2.0, 8 / 3.5)
    assert (a.remote_share, total.remote_share) == (2 / 5, 2 / 10)
    assert total.identical == 2


@pytest.mark.parametrize(
    ("theirs", "at"),
    [((1, 2, 3, 4, 5), None), ((1, 2, 9, 4, 5), 2), ((1, 2, 3), 3), ((1, 2, 3, 4, 5, 6), 5)],
)
def test_the_first_difference_is_found(theirs: tuple[int, ...], at: int | None) -> None:
    assert Pair("c", make_leg(), make_leg(theirs)).first_difference == at


def test_only_a_small_gap_in_standard_decode_counts_as_a_near_tie() -> None:
    other = make_leg((1, 2, 9, 4, 5))
    assert Pair("c", make_leg(gaps=(1.0, 1.0, 0.1, 1.0, 1.0)), other).near_tie("bfloat16")
    assert not Pair("c", make_leg(gaps=(0.1, 0.1, 0.9, 0.1, 0.1)), other).near_tie("bfloat16")
    assert not Pair("c", make_leg(gaps=(1.0, 1.0, 0.1, 1.0, 1.0)), other).near_tie("float32")


def test_the_table_fits_a_terminal_of_80_columns() -> None:
    console = Console(width=80, record=True, file=io.StringIO())
    pairs = [Pair("math_reasoning", make_leg(), make_leg())]
    console.print(table_of(rows_of(pairs), "title"))
    text = console.export_text()
    assert "math_reasoning" in text
    for heading in ("standard", "acceptance", "identical"):
        assert heading in text


# -------------------------------------------------------------------------------- colours


def make_delta(text: str, pieces: list[str], accepted: int) -> Delta:
    scores = tuple(TokenScore(i, piece, -0.1) for i, piece in enumerate(pieces))
    return Delta(text, tuple(range(len(pieces))), accepted, scores)


def test_accepted_tokens_are_coloured_and_the_text_is_never_altered() -> None:
    text = coloured(make_delta("abc", ["a", "b", "c"], 2))
    assert text.plain == "abc"
    assert [span.style for span in text.spans].count(ACCEPTED) == 2
    held_back = coloured(make_delta("a", ["a", "�"], 1))
    assert held_back.plain == "a"


# -------------------------------------------------------------------------------- watch


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"drafter_pids": ()}, "no drafter"),
        ({"links_up": 0}, "connected"),
        ({"drafter_pids": (2**22 + 1,)}, "became"),
    ],
)
def test_a_drafter_that_is_gone_is_said_to_be(change: dict, reason: str) -> None:
    with pytest.raises(DrafterLost, match=reason):
        require_alive(make_sighting(**change), since=make_sighting())


def test_a_drafter_whose_process_ended_is_gone_even_while_it_is_registered() -> None:
    with pytest.raises(DrafterLost, match="ended"):
        require_alive(make_sighting(drafter_pids=(2**22 + 1,)))
    require_alive(make_sighting(), since=make_sighting())


# -------------------------------------------------------------------------------- dataset


def test_the_built_in_prompts_are_varied() -> None:
    prompts = load(None)
    assert len(prompts) >= 12
    assert len({p.category for p in prompts}) >= 8
    assert len({p.category for p in load(None, 8)}) == 8


def test_spec_bench_files_are_taken(tmp_path: Path) -> None:
    file = tmp_path / "question.jsonl"
    record = {"question_id": 81, "category": "writing", "turns": ["Write.", "Again."]}
    file.write_text(json.dumps(record) + "\n\n")
    (prompt,) = load(file)
    assert (prompt.id, prompt.category, prompt.text) == ("81", "writing", "Write.")


@pytest.mark.parametrize(
    "line", ["{", "[]", '{"question_id": 1}', '{"question_id":1,"category":"a","turns":[""]}', ""]
)
def test_a_file_that_is_none_is_refused_by_its_line(tmp_path: Path, line: str) -> None:
    file = tmp_path / "bad.jsonl"
    file.write_text(line + "\n")
    with pytest.raises(DatasetError, match=r"line 1|no prompts"):
        load(file)
    with pytest.raises(DatasetError, match="cannot read"):
        load(tmp_path / "missing.jsonl")


class Building:
    """A server whose executor is native at the third look."""

    def __init__(self, states: list[str]) -> None:
        self.states = states

    def status(self) -> Any:
        state = self.states.pop(0) if len(self.states) > 1 else self.states[0]
        return SimpleNamespace(verifiers=[SimpleNamespace(executor=state)])


def test_no_leg_starts_before_the_executor_is_settled() -> None:
    client: Any = Building(["building", "building", "native"])
    assert until_settled(client, 60.0, lambda seconds: None) == "native"
    stuck: Any = Building(["building"])
    assert until_settled(stuck, 0.0, lambda seconds: None) == "building"
